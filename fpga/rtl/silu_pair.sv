// Two elements of SILU_GATE: silu(gate) * up.
//
// What:       p = sigmoid(gate) by table and linear interpolation; h = sat32(rnd(gate * p, 16));
//             out = sat32(rnd(h * up, shift)). gate and up have 16 fraction bits. Two, because a
//             block memory has two read ports.
// Latency: 13 cycles.
// Throughput: both values in every cycle.
// Golden: fpga/golden/silu_gate.py::silu_gate
`default_nettype none
`include "tables.svh"

module silu_pair (
    input  wire               clk,
    input  wire               in_valid,
    input  wire  [11:0]       valid,      // bit k: an input of k + 1 cycles ago
    input  wire  [63:0]       in_gate,
    input  wire  [63:0]       in_up,
    input  wire  signed [6:0] shift,      // 32 - out_frac, clamped; stable
    output logic [63:0]       out_values
);
    `include "fixed.svh"

    // Just below 16.0. The last entries are 1 and their steps 0: so it is from there on.
    localparam logic [19:0] LIMIT = 20'hF_FFFF;
    localparam int STEP_BITS = `TABLE_SIGMOID_STEP_BITS;

    // entry and the step to the next one
    logic [`TABLE_SIGMOID_BITS-1:0] rom [0:`TABLE_SIGMOID_ENTRIES-1];
    logic [STEP_BITS-1:0] step_rom [0:`TABLE_SIGMOID_STEP_ENTRIES-1];
    initial begin
        `TABLE_SIGMOID_INIT(rom)
        `TABLE_SIGMOID_STEP_INIT(step_rom)
    end

    for (genvar i = 0; i < 2; i++) begin : g_element
        wire [31:0] gate_in = in_gate[i*32 +: 32];
        wire [30:0] size_in = magnitude32(gate_in);
        // 1: magnitude, clipped; 2, 3: table; 4: step * fraction; 5: interpolate; 6: sign
        logic signed [31:0] gate [1:6];
        logic signed [31:0] up [1:9];
        logic [19:0] size1;
        logic [`TABLE_SIGMOID_BITS-1:0] base2, base3, base4, positive5, share6;
        logic [STEP_BITS-1:0] step2, step3;
        logic [9:0] fraction2, fraction3;
        logic [STEP_BITS+9:0] part4;
        wire [16:0] step_up = 17'(part4[STEP_BITS+9:10]);
        always_ff @(posedge clk) begin
            if (in_valid) begin
                gate[1] <= gate_in;
                up[1] <= in_up[i*32 +: 32];
                size1 <= size_in > {11'd0, LIMIT} ? LIMIT : size_in[19:0];
            end
            if (valid[0]) begin
                base2 <= rom[size1[19:10]];
                step2 <= step_rom[size1[19:10]];
                fraction2 <= size1[9:0];
            end
            if (valid[1]) begin
                base3 <= base2;
                step3 <= step2;
                fraction3 <= fraction2;
            end
            if (valid[2]) begin
                base4 <= base3;
                part4 <= (STEP_BITS + 10)'(step3) * (STEP_BITS + 10)'(fraction3);
            end
            if (valid[3]) positive5 <= base4 + step_up;
`ifdef BUG_SILU_PAIR_1
            if (valid[4]) share6 <= positive5;
`else
            if (valid[4]) share6 <= gate[5][31] ? 17'h1_0000 - positive5 : positive5;
`endif
        end

        // 7, 8: gate * sigmoid; 9: h; 10, 11: h * up
        logic signed [49:0] product7, product8;
        wire signed [63:0] activated = rnd_add64(rnd_shift64(64'(product8), 7'sd16));
        logic signed [31:0] activated9;
        logic signed [63:0] product10, product11;
        // 12: shift; 13: round and clip
        logic signed [63:0] shifted12;
        wire signed [63:0] rounded = shift > 7'sd0 ? rnd_add64(shifted12) : shifted12;
        wire [6:0] left = 7'd0 - shift;
        always_ff @(posedge clk) begin
            if (valid[5]) product7 <= 50'(gate[6]) * 50'($signed({1'b0, share6}));
            if (valid[6]) product8 <= product7;
            if (valid[7]) activated9 <= sat32(activated);
            if (valid[8]) product10 <= 64'(activated9) * 64'(up[9]);
            if (valid[9]) product11 <= product10;
            if (valid[10]) begin
                if (shift > 7'sd0) shifted12 <= rnd_shift64(product11, shift);
                else shifted12 <= product11 <<< left[2:0];
            end
            if (valid[11]) out_values[i*32 +: 32] <= sat32(rounded);
        end
        for (genvar k = 2; k <= 9; k++) begin : g_delay
            always_ff @(posedge clk) if (valid[k-2]) up[k] <= up[k-1];
            if (k <= 6) begin : g_gate
                always_ff @(posedge clk) if (valid[k-2]) gate[k] <= gate[k-1];
            end
        end
        wire unused = &{1'b0, part4[9:0], left[6:3]};
    end
endmodule
`default_nettype wire
