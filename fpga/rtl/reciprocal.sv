// One over a 16-bit mantissa: table and one Newton step.
//
// What:       out_value is about 2^31 / in_mantissa, in [2^15, 2^16], for mantissas in [2^15, 2^16).
// Latency: 7 cycles.
// Throughput: one value a cycle.
// Golden: fpga/golden/reciprocal.py::reciprocal
`default_nettype none
`include "tables.svh"

module reciprocal (
    input  wire         clk,
    input  wire         rst,
    input  wire         in_valid,
    input  wire  [15:0] in_mantissa,
    output logic        out_valid,
    output logic [16:0] out_value
);
    logic [15:0] rom [0:`TABLE_RECIPROCAL_ENTRIES-1];
    initial begin
        `TABLE_RECIPROCAL_INIT(rom)
    end

    logic [5:0] valid;

    // 1: first guess
    logic [15:0] mantissa1, guess1;
    always_ff @(posedge clk) if (in_valid) begin
        mantissa1 <= in_mantissa;
        guess1 <= rom[in_mantissa[14:8]];
    end

    // 2, 3: mantissa * guess; 4: the error, about 2^31
    logic [31:0] product2, product3;
    logic [15:0] guess2, guess3, guess4;
    logic [32:0] error4;
    always_ff @(posedge clk) begin
        if (valid[0]) begin
            product2 <= 32'(mantissa1) * 32'(guess1);
            guess2 <= guess1;
        end
        if (valid[1]) begin
            product3 <= product2;
            guess3 <= guess2;
        end
        if (valid[2]) begin
            error4 <= 33'h1_0000_0000 - {1'b0, product3};
            guess4 <= guess3;
        end
    end

    // 5, 6: guess * error; 7: its upper part
    logic [48:0] product5, product6;
    always_ff @(posedge clk) begin
        if (valid[3]) product5 <= 49'(guess4) * 49'(error4);
        if (valid[4]) product6 <= product5;
`ifdef BUG_RECIPROCAL_1
        if (valid[5]) out_value <= 17'((product6 + 49'h4000_0000) >> 31);
`else
        if (valid[5]) out_value <= 17'(product6 >> 31);
`endif
    end

    always_ff @(posedge clk) begin
        {out_valid, valid} <= {valid, in_valid};
        if (rst) {out_valid, valid} <= '0;
    end
endmodule
`default_nettype wire
