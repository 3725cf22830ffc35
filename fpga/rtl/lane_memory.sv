// The vector memory of one lane: PORTS banks of 4 int32 a word, two read ports, one write port a bank.
//
// What:       Element e of a vector lies in bank (e/4) mod PORTS, word e/(4*PORTS). Read port A takes
//             one word of all banks (vector units) or, bank by bank, a drain's old word; the two never
//             coincide. Writes come from the drains, each to its bank, or from a vector unit to the
//             banks of a mask. Keeps the largest magnitude written since absmax_clear.
// Latency: 2 cycles from *_en to data; a write is visible to reads 2 cycles later; absmax counts a
//             write 5 + ceil(log2(PORTS)) cycles later (absmax_ready says so).
// Throughput: two reads and one write of all banks a cycle.
// Golden: fpga/golden/fixed.py::saturate32
`default_nettype none

module lane_memory #(
    parameter int PORTS = 4,       // banks: 1, 2, 4 .. 32
    parameter int BANK_WORDS = 64, // 128-bit words of a bank: a power of two, 2 or more
    parameter int WORD_BITS = 16   // bits of a word index; the upper ones beyond BANK_WORDS are ignored
) (
    input  wire                        clk,
    input  wire                        rst,
    // read port A, all banks
    input  wire                        a_en,
    input  wire  [WORD_BITS-1:0]       a_word,
    output wire  [PORTS*128-1:0]       a_data,       // 2 cycles later
    // read port A, by bank (drains, when accumulating); data on the bank's part of a_data
    input  wire  [PORTS-1:0]           d_read_en,
    input  wire  [PORTS*WORD_BITS-1:0] d_read_word,
    // read port B, all banks
    input  wire                        b_en,
    input  wire  [WORD_BITS-1:0]       b_word,
    output wire  [PORTS*128-1:0]       b_data,       // 2 cycles later
    // writes of the drains
    input  wire  [PORTS-1:0]           d_we,
    input  wire  [PORTS*WORD_BITS-1:0] d_word,
    input  wire  [PORTS*128-1:0]       d_data,
    // writes of the vector units (the integrator ORs them: an idle unit gives zeros)
    input  wire                        w_en,
    input  wire  [PORTS-1:0]           w_mask,
    input  wire  [WORD_BITS-1:0]       w_word,
    input  wire  [PORTS*128-1:0]       w_data,
    // largest magnitude
    input  wire                        absmax_clear, // forget all writes of earlier cycles
    output logic [30:0]                absmax,
    output logic                       absmax_ready  // level: absmax counts every write so far
);
    `include "fixed.svh"

    localparam int ADDRESS_BITS = $clog2(BANK_WORDS);
    localparam int LEVELS = $clog2(PORTS);
    localparam int SETTLE = 5 + LEVELS;

    // running maximum of each bank: leaves of the tree; node[1] is the result
    wire [30:0] node [1:2*PORTS-1];
    logic [3:0] clears;
    logic [SETTLE-1:0] recent;
    always_ff @(posedge clk) begin
        clears <= {clears[2:0], absmax_clear};
        recent <= {recent[SETTLE-2:0], absmax_clear || w_en || d_we != '0};
        if (rst) begin
            clears <= '1;
            recent <= '1;
        end
    end
    assign absmax_ready = recent == '0 && !w_en && d_we == '0;
    assign absmax = node[1];

    for (genvar p = 0; p < PORTS; p++) begin : g_bank
        // two copies, as a block RAM has one write and one read port
        logic [127:0] memory_a [0:BANK_WORDS-1];
        logic [127:0] memory_b [0:BANK_WORDS-1];

        wire [ADDRESS_BITS-1:0] read_address = d_read_en[p]
            ? d_read_word[p*WORD_BITS +: ADDRESS_BITS] : a_word[ADDRESS_BITS-1:0];
        logic [127:0] raw_a, out_a, raw_b, out_b;
        logic read_a, read_b;
        always_ff @(posedge clk) begin
            read_a <= a_en || d_read_en[p];
            read_b <= b_en;
            if (a_en || d_read_en[p]) raw_a <= memory_a[read_address];
            if (read_a) out_a <= raw_a;
            if (b_en) raw_b <= memory_b[b_word[ADDRESS_BITS-1:0]];
            if (read_b) out_b <= raw_b;
        end
        assign a_data[p*128 +: 128] = out_a;
        assign b_data[p*128 +: 128] = out_b;

        // 1: which write; 2: into the memory
        logic write;
        logic [ADDRESS_BITS-1:0] address;
        logic [127:0] data;
`ifdef BUG_LANE_MEMORY_1
        wire masked = w_en;
`else
        wire masked = w_en && w_mask[p];
`endif
        always_ff @(posedge clk) begin
            write <= d_we[p] || masked;
            if (d_we[p] || masked) begin
                address <= d_we[p] ? d_word[p*WORD_BITS +: ADDRESS_BITS] : w_word[ADDRESS_BITS-1:0];
                data <= d_we[p] ? d_data[p*128 +: 128] : w_data[p*128 +: 128];
            end
            if (write) begin
                memory_a[address] <= data;
                memory_b[address] <= data;
            end
            if (rst) write <= 1'b0;
        end

        // 2: magnitudes; 3, 4: largest of the word's four; 5: of all words
        logic [30:0] m0, m1, m2, m3, low3, high3, word4, running5;
        logic [2:0] valid;
        always_ff @(posedge clk) begin
            valid <= {valid[1:0], write};
            if (write) begin
                m0 <= magnitude32(data[0 +: 32]);
                m1 <= magnitude32(data[32 +: 32]);
                m2 <= magnitude32(data[64 +: 32]);
                m3 <= magnitude32(data[96 +: 32]);
            end
            if (valid[0]) begin
                low3 <= m0 > m1 ? m0 : m1;
                high3 <= m2 > m3 ? m2 : m3;
            end
            if (valid[1]) word4 <= low3 > high3 ? low3 : high3;
            if (clears[3]) running5 <= valid[2] ? word4 : '0;
`ifdef BUG_LANE_MEMORY_2
            else if (valid[2]) running5 <= word4;
`else
            else if (valid[2] && word4 > running5) running5 <= word4;
`endif
            if (rst) valid <= '0;
        end
        assign node[PORTS+p] = running5;

`ifdef HETERO_ASSERT
        always_ff @(posedge clk) if (!rst) begin
            assert (!(d_we[p] && masked)) else $error("lane_memory: two writes to bank %0d", p);
            assert (!(a_en && d_read_en[p])) else $error("lane_memory: two reads of bank %0d", p);
        end
`endif
    end

    for (genvar n = 1; n < PORTS; n++) begin : g_node
        wire [30:0] left = node[2*n];
        wire [30:0] right = node[2*n+1];
        logic [30:0] larger;
        always_ff @(posedge clk) if (recent != '0) larger <= left > right ? left : right;
        assign node[n] = larger;
    end

    wire unused = &{1'b0, a_word, b_word, w_word, d_word, d_read_word};

`ifndef SYNTHESIS
    if (PORTS < 1 || PORTS > 32 || (PORTS & (PORTS - 1)) != 0) begin : g_check_ports
        initial $fatal(1, "lane_memory: PORTS = %0d must be 1, 2, 4, 8, 16 or 32", PORTS);
    end
    if (BANK_WORDS < 2 || (BANK_WORDS & (BANK_WORDS - 1)) != 0 || ADDRESS_BITS > WORD_BITS)
    begin : g_check_words
        initial $fatal(1, "lane_memory: BANK_WORDS = %0d must be a power of two, 2..2^WORD_BITS",
                       BANK_WORDS);
    end
`endif
endmodule
`default_nettype wire
