// Cuts a read request into bursts that end at multiples of the burst size.
//
// What:       So no burst crosses a 4 KiB boundary (AXI4), whatever the request's address.
// Latency:    1 cycle.
// Throughput: one burst a cycle; the next request follows without a gap.
// Golden:     none; the bursts add up to the request
`default_nettype none

module burst_splitter #(
    parameter int BURST_BEATS = 16  // longest burst in 64-byte beats, a power of two, 1..64
) (
    input  wire         clk,
    input  wire         rst,
    input  wire         cmd_valid,
    output logic        cmd_ready,
    input  wire  [63:0] cmd_addr,    // byte address, a multiple of 64
    input  wire  [31:0] cmd_beats,   // 64-byte beats, not 0
    output logic        burst_valid,
    input  wire         burst_ready,
    output logic [63:0] burst_addr,  // byte address
    output logic [6:0]  burst_beats, // 64-byte beats, 1..BURST_BEATS
    output logic        burst_final  // last burst of the request
);
  logic [57:0] beat_at;  // address in beats
  logic [31:0] left;
  logic [6:0]  room;     // beats up to the next boundary

`ifdef BUG_BURST_SPLITTER_1
  assign room = 7'(BURST_BEATS);
`else
  assign room = 7'(BURST_BEATS) - (beat_at[6:0] & 7'(BURST_BEATS - 1));
`endif
  assign burst_final = left[31:7] == 25'd0 && left[6:0] <= room;
  assign burst_beats = burst_final ? left[6:0] : room;
  assign burst_addr  = {beat_at, 6'd0};
  assign cmd_ready   = !burst_valid || (burst_ready && burst_final);

  always_ff @(posedge clk) begin
    if (cmd_ready && cmd_valid) begin
      beat_at <= cmd_addr[63:6];
      left    <= cmd_beats;
    end else if (burst_valid && burst_ready) begin
      beat_at <= beat_at + 58'(room);
      left    <= left - 32'(room);
    end
    if (rst) burst_valid <= 1'b0;
    else if (cmd_ready) burst_valid <= cmd_valid;
  end

  // verilator lint_off UNUSED
  wire unused = |cmd_addr[5:0];
  // verilator lint_on UNUSED
endmodule

`default_nettype wire
