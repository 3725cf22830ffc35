// The scale of a quantised vector, from its largest magnitude.
//
// What:       A = max(in_largest, 1): its length for quantise_values, 127 * recip(norm16(A)), and
//             the activation's scale A / 127 as (mantissa, exponent): value = q * M * 2^-E.
// Latency: out_length after 1, out_factor after 10, mantissa and exponent (held until the next)
//             after 5 cycles; out_valid comes with out_factor.
// Throughput: one vector a cycle.
// Golden: fpga/golden/quantise.py::quantise
`default_nettype none

module quantise_scale (
    input  wire                clk,
    input  wire                rst,
    input  wire                in_valid,
    input  wire  [39:0]        in_largest,   // max |value|
    input  wire signed [15:0]  in_frac,      // fraction bits of the values; stable for 3 cycles
    output logic [5:0]         out_length,   // L(A), 1..40; held until the next in_valid
    output logic               out_valid,
    output logic [23:0]        out_factor,   // recip * 127; held
    output logic [15:0]        out_mantissa, // held
    output logic signed [15:0] out_exponent  // held
);
    `include "fixed.svh"

    localparam logic [15:0] RECIPROCAL_OF_127 = 16'd33026;  // 2^22 / 127

    // 1: length; 2: mantissa
    logic [3:0] valid;
    logic [39:0] largest1;
    logic [15:0] mantissa2;
    logic [6:0] length1;
    wire [39:0] largest = in_largest == 40'd0 ? 40'd1 : in_largest;
    assign out_length = length1[5:0];
    always_ff @(posedge clk) begin
        if (in_valid) begin
            largest1 <= largest;
            length1 <= bit_length64({24'd0, largest});
        end
        if (valid[0]) mantissa2 <= norm16_mantissa({24'd0, largest1}, length1);
    end

    // 3 to 9: one over it; 10: * 127
    wire [16:0] inverse;
    wire inverse_valid;
    reciprocal u_reciprocal (
        .clk        (clk),
        .rst        (rst),
        .in_valid   (valid[1]),
        .in_mantissa(mantissa2),
        .out_valid  (inverse_valid),
        .out_value  (inverse)
    );
    always_ff @(posedge clk) begin
        out_valid <= inverse_valid;
        if (inverse_valid) out_factor <= {inverse, 7'd0} - {7'd0, inverse};
        if (rst) out_valid <= 1'b0;
    end

    // 3, 4: mantissa / 127 in units of 2^-22; its product with a mantissa has 31 or 32 bits
    logic [31:0] scale3, scale4;
    logic signed [15:0] base3, base4;
    always_ff @(posedge clk) begin
        if (valid[1]) begin
            scale3 <= 32'(mantissa2) * 32'(RECIPROCAL_OF_127);
            base3 <= in_frac + 16'sd38 - $signed({9'd0, length1});
        end
        if (valid[2]) begin
            scale4 <= scale3;
            base4 <= base3;
        end
        if (valid[3]) begin
`ifdef BUG_QUANTISE_SCALE_1
            out_mantissa <= scale4[31:16];
            out_exponent <= base4 - 16'sd16;
`else
            out_mantissa <= scale4[31] ? scale4[31:16] : scale4[30:15];
            out_exponent <= base4 - (scale4[31] ? 16'sd16 : 16'sd15);
`endif
        end
    end

    always_ff @(posedge clk) begin
        valid <= {valid[2:0], in_valid};
        if (rst) valid <= '0;
    end
    wire unused = &{1'b0, length1[6], scale4[14:0]};
endmodule
`default_nettype wire
