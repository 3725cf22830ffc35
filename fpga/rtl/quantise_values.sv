// Values to int8 by a known scale: the elements' half of QUANT.
//
// What:       vn = rnd(v, L - 16); q = sat8(rnd(vn * factor, 31)); length and factor come from
//             quantise_scale and must be there with in_valid and 2 cycles after it.
// Latency: 5 cycles.
// Throughput: ELEMENTS values a cycle.
// Golden: fpga/golden/quantise.py::quantise
//
// rnd(v, L - 16) is computed as rnd(v << (BITS - 1 - L), BITS - 17): one left shifter serves both
// directions, and the rounding place is a constant.
`default_nettype none

module quantise_values #(
    parameter int ELEMENTS = 16, // values a cycle
    parameter int BITS = 34      // bits of a value, sign included: 18..41; |v| < 2^length
) (
    input  wire                      clk,
    input  wire                      rst,
    input  wire                      in_valid,
    input  wire  [ELEMENTS*BITS-1:0] in_values,
    input  wire  [5:0]               length,    // quantise_scale.out_length
    input  wire  [23:0]              factor,    // quantise_scale.out_factor
    output logic                     out_valid,
    output logic [ELEMENTS*8-1:0]    out_quant
);
    `include "fixed.svh"

`ifndef SYNTHESIS
    if (BITS < 18 || BITS > 41) begin : g_check
        initial $fatal(1, "quantise_values: BITS = %0d, must be 18..41", BITS);
    end
`endif

    logic [3:0] valid;
    wire [5:0] left = 6'(BITS - 1) - length;

    for (genvar i = 0; i < ELEMENTS; i++) begin : g_element
        // 1: leading bit of the largest to the top; 2: round to 17 bits and sign
        logic signed [BITS-1:0] aligned1;
        logic signed [17:0] normal2;
        wire signed [BITS:0] half = {aligned1[BITS-1], aligned1} + (BITS + 1)'(1 << (BITS - 18));
        // 3, 4: times the factor; 5: round and clip
        logic signed [42:0] product3, product4;
`ifdef BUG_QUANTISE_VALUES_1
        wire signed [42:0] rounded = product4 >>> 31;
`else
        wire signed [42:0] rounded = (product4 + 43'sd1073741824) >>> 31;
`endif
        always_ff @(posedge clk) begin
            if (in_valid) aligned1 <= in_values[i*BITS +: BITS] << left;
            if (valid[0]) normal2 <= 18'(half >>> (BITS - 17));
            if (valid[1]) product3 <= 43'(normal2) * 43'($signed({1'b0, factor}));
            if (valid[2]) product4 <= product3;
            if (valid[3]) out_quant[i*8 +: 8] <= sat8(64'(rounded));
        end
    end

    always_ff @(posedge clk) begin
        {out_valid, valid} <= {valid, in_valid};
        if (rst) {out_valid, valid} <= '0;
    end
endmodule
`default_nettype wire
