// One over a square root: table and one Newton step.
//
// What:       1 / sqrt(in_value) is about out_mantissa * 2^-out_exponent, 1 <= in_value < 2^53.
// Latency: 11 cycles.
// Throughput: one value a cycle.
// Golden: fpga/golden/rsqrt.py::rsqrt
`default_nettype none
`include "tables.svh"

module rsqrt (
    input  wire                clk,
    input  wire                rst,
    input  wire                in_valid,
    input  wire  [52:0]        in_value,
    output logic               out_valid,
    output logic [16:0]        out_mantissa,
    output logic signed [15:0] out_exponent
);
    `include "fixed.svh"

    logic [15:0] rom [0:`TABLE_RSQRT_ENTRIES-1];
    initial begin
        `TABLE_RSQRT_INIT(rom)
    end

    logic [9:0] valid;

    // 1: length; 2: an even shift brings the value to [2^30, 2^32)
    logic [52:0] value1;
    logic [6:0] length1;
    logic [31:0] normal2;
    logic signed [15:0] exponent [2:10];
    wire [6:0] left = (7'd64 - length1) & 7'h7e;
    wire [63:0] shifted = {11'd0, value1} << left;
    wire signed [15:0] excess = $signed({9'd0, length1}) - 16'sd31;
    always_ff @(posedge clk) begin
        if (in_valid) begin
            value1 <= in_value;
            length1 <= bit_length64({11'd0, in_value});
        end
        if (valid[0]) begin
            normal2 <= shifted[63:32];
`ifdef BUG_RSQRT_1
            exponent[2] <= 16'sd31 + excess / 16'sd2;
`else
            exponent[2] <= 16'sd31 + (excess >>> 1);
`endif
        end
    end

    // 3: first guess
    logic [15:0] upper3, guess [3:8];
    always_ff @(posedge clk) if (valid[1]) begin
        upper3 <= normal2[31:16];
        guess[3] <= rom[normal2[31:24] - 8'd64];
    end

    // 4, 5: value * guess; 6, 7: * guess; 8: three halves minus that
    logic [31:0] once4, once5, rest8;
    logic [47:0] twice6, twice7;
    always_ff @(posedge clk) begin
        if (valid[2]) once4 <= 32'(upper3) * 32'(guess[3]);
        if (valid[3]) once5 <= once4;
        if (valid[4]) twice6 <= 48'(once5) * 48'(guess[5]);
        if (valid[5]) twice7 <= twice6;
        if (valid[6]) rest8 <= 32'hc000_0000 - twice7[47:16];
    end

    // 9, 10: guess * that; 11: its upper part
    logic [47:0] product9, product10;
    always_ff @(posedge clk) begin
        if (valid[7]) product9 <= 48'(guess[8]) * 48'(rest8);
        if (valid[8]) product10 <= product9;
        if (valid[9]) begin
            out_mantissa <= product10[47:31];
            out_exponent <= exponent[10];
        end
    end

    for (genvar i = 4; i <= 8; i++) begin : g_guess
        always_ff @(posedge clk) if (valid[i-2]) guess[i] <= guess[i-1];
    end
    for (genvar i = 3; i <= 10; i++) begin : g_exponent
        always_ff @(posedge clk) if (valid[i-2]) exponent[i] <= exponent[i-1];
    end

    wire unused = &{1'b0, normal2[15:0], shifted[31:0], twice7[15:0], product10[30:0]};

    always_ff @(posedge clk) begin
        {out_valid, valid} <= {valid, in_valid};
        if (rst) {out_valid, valid} <= '0;
    end
endmodule
`default_nettype wire
