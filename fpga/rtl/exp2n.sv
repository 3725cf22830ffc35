// Two to a negative power, by table and linear interpolation.
//
// What: out_value = 2^-in_distance in units of 2^-23; in_distance >= 0 in units of 2^-16.
// Latency: 5 cycles.
// Throughput: one value a cycle.
// Golden: fpga/golden/exp2.py::exp2_negative
`default_nettype none
`include "tables.svh"

module exp2n (
    input  wire         clk,
    input  wire         rst,
    input  wire         in_valid,
    input  wire  [31:0] in_distance,
    output logic        out_valid,
    output logic [23:0] out_value    // 0..2^23
);
    logic [`TABLE_EXP2_BITS-1:0] rom [0:`TABLE_EXP2_ENTRIES-1];
    logic signed [`TABLE_EXP2_STEP_BITS-1:0] step_rom [0:`TABLE_EXP2_STEP_ENTRIES-1];
    initial begin
        `TABLE_EXP2_INIT(rom)
        `TABLE_EXP2_STEP_INIT(step_rom)
    end

    logic [3:0] valid;

    // 1: read the segment
    logic [23:0] base1;
    logic signed [15:0] step1;
    logic [7:0] fraction1;
    logic [4:0] whole1;
    logic zero1;
    always_ff @(posedge clk) if (in_valid) begin
        base1 <= rom[{1'b0, in_distance[15:8]}];
        step1 <= step_rom[in_distance[15:8]];
        fraction1 <= in_distance[7:0];
        whole1 <= in_distance[20:16];
        zero1 <= in_distance[31:16] > 16'd24;
    end

    // 2: interpolate
    logic [23:0] base2;
    // verilator lint_off UNUSEDSIGNAL
    logic signed [24:0] product2; // its low byte is cut off
    // verilator lint_on UNUSEDSIGNAL
    logic [4:0] whole2;
    logic zero2;
    always_ff @(posedge clk) if (valid[0]) begin
        base2 <= base1;
        product2 <= step1 * $signed({1'b0, fraction1});
        whole2 <= whole1;
        zero2 <= zero1;
    end

    // 3: the mantissa
    logic [23:0] value3;
    logic [4:0] whole3;
    logic zero3;
    always_ff @(posedge clk) if (valid[1]) begin
        value3 <= base2 + {{7{product2[24]}}, product2[24:8]};
        whole3 <= whole2;
        zero3 <= zero2;
    end

    // 4, 5: shift and round
    logic [24:0] shifted4;
    always_ff @(posedge clk) begin
        if (valid[2]) shifted4 <= zero3 ? 25'd0 : {value3, 1'b0} >> whole3;
`ifdef BUG_EXP2N_1
        if (valid[3]) out_value <= shifted4[24:1];
`else
        if (valid[3]) out_value <= shifted4[24:1] + {23'd0, shifted4[0]};
`endif
    end

    always_ff @(posedge clk) begin
        {out_valid, valid} <= {valid, in_valid};
        if (rst) {out_valid, valid} <= '0;
    end
endmodule

`default_nettype wire
