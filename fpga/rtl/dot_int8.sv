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

    // functions, so that a simulator works out only what is registered
    function automatic logic [BYTES*16-1:0] products(input logic [BYTES*8-1:0] a_i,
                                                     input logic [BYTES*8-1:0] b_i);
        for (int i = 0; i < BYTES; i++)
            products[i*16 +: 16] = 16'($signed(a_i[i*8 +: 8])) * 16'($signed(b_i[i*8 +: 8]));
    endfunction

    function automatic logic [16*22-1:0] first_sums(input logic [BYTES*16-1:0] x_i);
        first_sums = '0;
        for (int i = 0; i < BYTES / 4; i++)
            first_sums[i*22 +: 22] = (22'($signed(x_i[64*i +: 16])) + 22'($signed(x_i[64*i+16 +: 16])))
                + (22'($signed(x_i[64*i+32 +: 16])) + 22'($signed(x_i[64*i+48 +: 16])));
    endfunction

    function automatic logic [4*22-1:0] second_sums(input logic [16*22-1:0] x_i);
        for (int i = 0; i < 4; i++)
            second_sums[i*22 +: 22] = (x_i[88*i +: 22] + x_i[88*i+22 +: 22])
                + (x_i[88*i+44 +: 22] + x_i[88*i+66 +: 22]);
    endfunction

    logic [LEVELS:0] valid;
    logic [BYTES*16-1:0] product;
    logic [16*22-1:0] first;
    logic [4*22-1:0] second;
    always_ff @(posedge clk) begin
        if (in_valid) product <= products(in_a, in_b);
        if (valid[0]) first <= first_sums(product);
        if (valid[1]) second <= second_sums(first);
        valid <= {valid[LEVELS-1:0], in_valid};
        if (rst) valid <= '0;
    end
    assign out_valid = valid[LEVELS];

    if (LEVELS == 2) begin : g_short
        assign out_dot = second[21:0];
    end else begin : g_long
        logic signed [21:0] third;
        always_ff @(posedge clk)
            if (valid[2]) third <= (second[21:0] + second[43:22]) + (second[65:44] + second[87:66]);
        assign out_dot = third;
    end

`ifndef SYNTHESIS
    if (BYTES != 16 && BYTES != 32 && BYTES != 64) begin : g_check
        initial $fatal(1, "dot_int8: BYTES = %0d must be 16, 32 or 64", BYTES);
    end
`endif
endmodule

`default_nettype wire
