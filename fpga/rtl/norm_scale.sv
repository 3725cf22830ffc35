// The scale of a NORM_QUANT: the root of the sum of squares times the scale of z.
//
// What:       (y, ey) = rsqrt(max(sum + (eps >> 2 * block), 1)); (m, s) = norm16(quant_mantissa * y);
//             exponent = quant_exponent + ey - s + gamma_shift.
// Latency: 15 cycles; quant_* must be there 12 cycles after in_valid and stay.
// Throughput: one vector a cycle while block, eps, gamma_shift and quant_* stay.
// Golden: fpga/golden/norm.py::norm_quant
`default_nettype none

module norm_scale (
    input  wire                clk,
    input  wire                rst,
    input  wire                in_valid,
    input  wire  [49:0]        in_sum,         // of the squares
    input  wire  [3:0]         block,
    input  wire  [31:0]        eps,
    input  wire signed [15:0]  gamma_shift,
    input  wire  [15:0]        quant_mantissa, // of z
    input  wire signed [15:0]  quant_exponent,
    output logic               out_valid,
    output logic [15:0]        out_mantissa,   // held
    output logic signed [15:0] out_exponent    // held
);
    // 1: the value of the root
    logic [52:0] value1;
    logic valid1;
    wire [31:0] eps_shifted = eps >> {block, 1'b0};
    wire [52:0] sum = {3'd0, in_sum} + {21'd0, eps_shifted};
    always_ff @(posedge clk) begin
        if (in_valid) value1 <= sum == 53'd0 ? 53'd1 : sum;
        valid1 <= in_valid;
        if (rst) valid1 <= 1'b0;
    end

    // 2 to 12: the root
    wire root_valid;
    wire [16:0] root;
    wire signed [15:0] root_exponent;
    rsqrt u_rsqrt (
        .clk         (clk),
        .rst         (rst),
        .in_valid    (valid1),
        .in_value    (value1),
        .out_valid   (root_valid),
        .out_mantissa(root),
        .out_exponent(root_exponent)
    );

    // 13, 14: product in [2^30, 2^32]; 15: its upper 16 bits
    logic [1:0] valid;
    logic [32:0] product13, product14;
    logic signed [15:0] base13, base14;
    always_ff @(posedge clk) begin
        if (root_valid) begin
            product13 <= 33'(quant_mantissa) * 33'(root);
            base13 <= quant_exponent + root_exponent + gamma_shift;
        end
        if (valid[0]) begin
            product14 <= product13;
            base14 <= base13;
        end
        if (valid[1]) begin
`ifdef BUG_NORM_SCALE_1
            out_mantissa <= product14[31:16];
            out_exponent <= base14 - 16'sd16;
`else
            out_mantissa <= product14[32] ? product14[32:17]
                : product14[31] ? product14[31:16] : product14[30:15];
            out_exponent <= base14 - (product14[32] ? 16'sd17 : product14[31] ? 16'sd16 : 16'sd15);
`endif
        end
        {out_valid, valid} <= {valid, root_valid};
        if (rst) {out_valid, valid} <= '0;
    end

    wire unused = &{1'b0, product14[14:0]};
endmodule
`default_nettype wire
