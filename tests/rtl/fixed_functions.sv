// The functions of fixed.svh behind registers, for their bench.
`default_nettype none
module fixed_functions (
    input  wire                clk,
    input  wire  signed [63:0] value,
    input  wire  signed [31:0] shift,
    output logic signed [63:0] rounded64,
    output logic signed [63:0] halves64,
    output logic signed [47:0] rounded48,
    output logic signed [39:0] rounded40,
    output logic signed [31:0] clipped32,
    output logic signed [7:0]  clipped8,
    output logic [30:0]        magnitude,
    output logic [6:0]         length64,
    output logic [5:0]         length32,
    output logic [15:0]        mantissa
);
    `include "fixed.svh"
    always_ff @(posedge clk) begin
        rounded64 <= rnd64(value, clamp_shift(shift));
        halves64 <= rnd_add64(rnd_shift64(value, clamp_shift(shift)));
        rounded48 <= rnd48(value[47:0], clamp_shift(shift));
        rounded40 <= rnd40(value[39:0], shift[4:0]);
        clipped32 <= sat32(value);
        clipped8 <= sat8(value);
        magnitude <= magnitude32(value[31:0]);
        length64 <= bit_length64(value);
        length32 <= bit_length32(value[31:0]);
        mantissa <= norm16_mantissa(value, bit_length64(value));
    end
endmodule
`default_nettype wire
