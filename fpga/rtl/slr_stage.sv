// Register stages of a valid/ready stream, for crossings between the dies of a card (SLRs).
//
// What:       STAGES skid buffers one after the other. Both directions are registered, so a stage
//             cuts every combinational path; STAGES = 0 is a wire.
// Latency:    STAGES cycles forward.
// Throughput: one transfer a cycle, whatever the sink does.
// Golden:     none; the stream comes out as it went in.
`default_nettype none

module slr_stage #(
    parameter int WIDTH = 8,   // bits of a transfer
    parameter int STAGES = 1   // register stages, 0..3
) (
    input  wire              clk,
    input  wire              rst,
    input  wire              in_valid,
    output logic             in_ready,
    input  wire  [WIDTH-1:0] in_data,
    output logic             out_valid,
    input  wire              out_ready,
    output logic [WIDTH-1:0] out_data
);
  // Link i lies before stage i, link STAGES at the output.
  wire [STAGES:0]             link_valid;
  wire [STAGES:0]             link_ready;
  wire [(STAGES+1)*WIDTH-1:0] link_data;

  assign link_valid[0]          = in_valid;
  assign link_data[WIDTH-1:0]   = in_data;
  assign in_ready               = link_ready[0];
  assign out_valid              = link_valid[STAGES];
  assign out_data               = link_data[STAGES*WIDTH+:WIDTH];
  assign link_ready[STAGES]     = out_ready;

  for (genvar i = 0; i < STAGES; i++) begin : g_stage
    skid_buffer #(
        .WIDTH(WIDTH)
    ) u_skid (
        .clk      (clk),
        .rst      (rst),
        .in_valid (link_valid[i]),
        .in_ready (link_ready[i]),
        .in_data  (link_data[i*WIDTH+:WIDTH]),
        .out_valid(link_valid[i+1]),
        .out_ready(link_ready[i+1]),
        .out_data (link_data[(i+1)*WIDTH+:WIDTH])
    );
  end

  // verilator lint_off UNUSED
  wire unused = clk & rst;  // STAGES = 0 has no use for them
  // verilator lint_on UNUSED

`ifndef SYNTHESIS
  if (STAGES < 0 || STAGES > 3 || WIDTH < 1) begin : g_check
    initial $fatal(1, "slr_stage: STAGES = %0d must be 0..3, WIDTH = %0d at least 1", STAGES, WIDTH);
  end
`endif
endmodule

`default_nettype wire
