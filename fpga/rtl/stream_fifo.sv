// Small first-word-fall-through FIFO in distributed memory, for commands and tags.
//
// What:       in_ready says that there is room now; it does not depend on out_ready.
// Latency:    1 cycle.
// Throughput: one transfer in and one out in each cycle.
// Golden:     none; transfers come out as they went in.
`default_nettype none

module stream_fifo #(
    parameter int WIDTH = 8,  // bits of a transfer
    parameter int DEPTH = 16  // capacity, a power of two, 2 or more
) (
    input  wire                    clk,
    input  wire                    rst,
    input  wire                    clear,      // forget everything
    input  wire                    in_valid,
    output logic                   in_ready,
    input  wire  [WIDTH-1:0]       in_data,
    output logic                   out_valid,
    input  wire                    out_ready,
    output logic [WIDTH-1:0]       out_data,
    output logic [$clog2(DEPTH):0] level       // transfers held (registered)
);
  localparam int ADDR_BITS = $clog2(DEPTH);

  logic [WIDTH-1:0]     mem [0:DEPTH-1];
  logic [ADDR_BITS-1:0] write_at;
  logic [ADDR_BITS-1:0] read_at;

  wire push = in_valid && in_ready;
  wire pop = out_valid && out_ready;

  assign in_ready  = !level[ADDR_BITS];
  assign out_valid = level != '0;
  assign out_data  = mem[read_at];

  always_ff @(posedge clk) begin
    if (push) mem[write_at] <= in_data;
    if (rst || clear) begin
      write_at <= '0;
      read_at  <= '0;
      level    <= '0;
    end else begin
      if (push) write_at <= write_at + 1'b1;
      if (pop) read_at <= read_at + 1'b1;
      if (push && !pop) level <= level + 1'b1;
      else if (pop && !push) level <= level - 1'b1;
    end
  end

`ifndef SYNTHESIS
  if (DEPTH < 2 || (DEPTH & (DEPTH - 1)) != 0) begin : g_check
    initial $fatal(1, "stream_fifo: DEPTH = %0d must be a power of two, 2 or more", DEPTH);
  end
`endif
endmodule

`default_nettype wire
