// Dot product of BYTES int8 pairs.
//
// Latency: 1 + ceil(log4(BYTES)) cycles.
// Throughput: one a cycle.
// Golden: fpga/golden/attention.py::_weights (its dot products)
`default_nettype none

module dot_int8 #(
    parameter int BYTES = 64  // pairs: 16, 32, 64
) (
    input  wire                 clk,
    input  wire                 rst,
    input  wire                 in_valid,
    input  wire  [BYTES*8-1:0]  in_a,
    input  wire  [BYTES*8-1:0]  in_b,
    output wire                 out_valid,
    output wire signed [21:0]   out_dot
);
    localparam int QUADS = BYTES / 4;                 // after the first adders
    localparam int LEVELS = $clog2(BYTES) > 4 ? 3 : 2; // 16: 4, 1; 32: 8, 2, 1; 64: 16, 4, 1

    logic [LEVELS:0] valid;
    always_ff @(posedge clk) begin
        valid <= {valid[LEVELS-1:0], in_valid};
        if (rst) valid <= '0;
    end
    assign out_valid = valid[LEVELS];

    wire signed [15:0] product [0:BYTES-1];
    for (genvar i = 0; i < BYTES; i++) begin : g_product
        logic signed [15:0] q;
        always_ff @(posedge clk)
            if (in_valid) q <= $signed(in_a[i*8 +: 8]) * $signed(in_b[i*8 +: 8]);
        assign product[i] = q;
    end

    wire signed [21:0] quad [0:15];
    for (genvar i = 0; i < 16; i++) begin : g_quad
        if (i < QUADS) begin : g_used
            logic signed [21:0] q;
            always_ff @(posedge clk) if (valid[0])
                q <= (22'(product[4*i]) + 22'(product[4*i+1])) + (22'(product[4*i+2]) + 22'(product[4*i+3]));
            assign quad[i] = q;
        end else begin : g_none
            assign quad[i] = '0;
        end
    end

    wire signed [21:0] four [0:3];
    for (genvar i = 0; i < 4; i++) begin : g_four
        logic signed [21:0] q;
        always_ff @(posedge clk)
            if (valid[1]) q <= (quad[4*i] + quad[4*i+1]) + (quad[4*i+2] + quad[4*i+3]);
        assign four[i] = q;
    end

    if (LEVELS == 2) begin : g_short
        assign out_dot = four[0];
    end else begin : g_long
        logic signed [21:0] q;
        always_ff @(posedge clk)
            if (valid[2]) q <= (four[0] + four[1]) + (four[2] + four[3]);
        assign out_dot = q;
    end

`ifndef SYNTHESIS
    if (BYTES != 16 && BYTES != 32 && BYTES != 64) begin : g_check
        initial $fatal(1, "dot_int8: BYTES = %0d must be 16, 32 or 64", BYTES);
    end
`endif
endmodule

`default_nettype wire
