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
    localparam int LEVELS = $clog2(BYTES) > 4 ? 3 : 2; // 16: 4, 1; 32: 8, 2, 1; 64: 16, 4, 1

    logic [LEVELS:0] valid;
    always_ff @(posedge clk) begin
        valid <= {valid[LEVELS-1:0], in_valid};
        if (rst) valid <= '0;
    end
    assign out_valid = valid[LEVELS];

    // a register for each node, and nothing worked out that is not registered: simulators like it
    for (genvar i = 0; i < BYTES; i++) begin : g_product
        logic signed [15:0] q;
        always_ff @(posedge clk)
            if (in_valid) q <= $signed(in_a[i*8 +: 8]) * $signed(in_b[i*8 +: 8]);
    end
    for (genvar i = 0; i < BYTES / 4; i++) begin : g_first
        logic signed [21:0] q;
        always_ff @(posedge clk) if (valid[0])
            q <= (22'(g_product[4*i].q) + 22'(g_product[4*i+1].q))
                + (22'(g_product[4*i+2].q) + 22'(g_product[4*i+3].q));
    end
    for (genvar i = 0; i < BYTES / 16; i++) begin : g_second
        logic signed [21:0] q;
        always_ff @(posedge clk) if (valid[1])
            q <= (g_first[4*i].q + g_first[4*i+1].q) + (g_first[4*i+2].q + g_first[4*i+3].q);
    end
    if (BYTES == 16) begin : g_third
        assign out_dot = g_second[0].q;
    end else if (BYTES == 32) begin : g_third
        logic signed [21:0] q;
        always_ff @(posedge clk) if (valid[2]) q <= g_second[0].q + g_second[1].q;
        assign out_dot = q;
    end else begin : g_third
        logic signed [21:0] q;
        always_ff @(posedge clk) if (valid[2])
            q <= (g_second[0].q + g_second[1].q) + (g_second[2].q + g_second[3].q);
        assign out_dot = q;
    end

`ifndef SYNTHESIS
    if (BYTES != 16 && BYTES != 32 && BYTES != 64) begin : g_check
        initial $fatal(1, "dot_int8: BYTES = %0d must be 16, 32 or 64", BYTES);
    end
`endif
endmodule

`default_nettype wire
