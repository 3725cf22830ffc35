// One register stage of a valid/ready stream, registered in both directions.
//
// What:       Holds what the sink sees and, in a second register, what came while the sink refused.
// Latency:    1 cycle.
// Throughput: one transfer a cycle, whatever the sink does.
// Golden:     none; the stream comes out as it went in.
`default_nettype none

module skid_buffer #(
    parameter int WIDTH = 8  // bits of a transfer
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
  logic [WIDTH-1:0] spare;
  logic             spare_valid;
  wire              moves = out_ready || !out_valid;

  assign in_ready = !spare_valid;

  always_ff @(posedge clk) begin
    if (moves) begin
      if (spare_valid) out_data <= spare;
      else if (in_valid) out_data <= in_data;
    end
    if (in_valid && in_ready) spare <= in_data;
    if (rst) begin
      out_valid   <= 1'b0;
      spare_valid <= 1'b0;
    end else if (moves) begin
      out_valid   <= spare_valid || in_valid;
      spare_valid <= 1'b0;
    end else if (in_valid) begin
`ifdef BUG_SKID_BUFFER_1
      spare_valid <= 1'b0;
`else
      spare_valid <= 1'b1;
`endif
    end
  end
endmodule

`default_nettype wire
