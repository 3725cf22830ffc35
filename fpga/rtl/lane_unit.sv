`default_nettype none
// One row's state and its vector work: vector memory, vector instructions, candidates.
//
// What: lane_memory, lane_vector and top_candidates, and who may use the memory's shared ports:
//   only one unit works at a time, so requests are ORed.
// Latency: those of its parts.
// Throughput: one vector word a cycle.
// Golden: none; wiring
module lane_unit #(
    parameter int PORTS = 4,            // memory ports: a vector word has 4 * PORTS elements
    parameter int VECTOR_WORDS = 16384, // int32 words of vector memory
    parameter int WORD_BITS = 16        // bits of a word index
) (
    input  wire                         clk,
    input  wire                         rst,
    // sequencer
    input  wire  [511:0]                op_word,
    input  wire                         active,
    input  wire                         op_use_absmax,
    input  wire                         absmax_clear,
    input  wire                         start_vector,
    output wire                         done_vector,
    output wire                         busy_vector,
    input  wire                         start_head,
    output wire                         done_head,
    output wire                         absmax_ready,
    input  wire                         all_absmax_ready,
    // gamma buffer
    input  wire                         gamma_ready,
    output wire                         gamma_en,
    output wire  [WORD_BITS-1:0]        gamma_word,
    input  wire  [PORTS*64-1:0]         gamma_data,
    output wire                         gamma_release,
    // activation bus
    output wire                         act_we,
    output wire  [WORD_BITS-1:0]        act_word,
    output wire  [PORTS*32-1:0]         act_data,
    output wire  [15:0]                 act_mant,
    output wire  [15:0]                 act_exp,
    // drains of all ports
    input  wire  [PORTS-1:0]            drain_read_en,
    input  wire  [PORTS*WORD_BITS-1:0]  drain_read_word,
    output wire  [PORTS*128-1:0]        read_data,      // port A: drains and attention
    input  wire  [PORTS-1:0]            drain_write_en,
    input  wire  [PORTS*WORD_BITS-1:0]  drain_write_word,
    input  wire  [PORTS*128-1:0]        drain_write_data,
    // attention
    input  wire                         attn_re,
    input  wire  [WORD_BITS-1:0]        attn_read_word,
    input  wire                         attn_we,
    input  wire  [WORD_BITS-1:0]        attn_write_word,
    input  wire  [PORTS-1:0]            attn_bank,
    input  wire  [PORTS*128-1:0]        attn_data,
    // embedding
    input  wire                         embed_we,
    input  wire  [WORD_BITS-1:0]        embed_word,
    input  wire  [PORTS-1:0]            embed_bank,
    input  wire  [PORTS*128-1:0]        embed_data,
    // logits of all ports
    input  wire  [PORTS-1:0]            logit_valid,
    output wire  [PORTS-1:0]            logit_ready,
    input  wire  [PORTS*32-1:0]         logit,
    input  wire  [PORTS*32-1:0]         logit_id,
    input  wire  [PORTS-1:0]            done_matrix,
    // candidates
    output wire  [6:0]                  held,
    input  wire  [5:0]                  rd_index,
    output wire  [31:0]                 rd_logit,
    output wire  [31:0]                 rd_id
);
    `include "isa.svh"
    localparam int BANK_WORDS = VECTOR_WORDS / (4 * PORTS);

    wire a_en, b_en, w_en;
    wire [WORD_BITS-1:0] a_word, b_word, w_word;
    wire [PORTS-1:0] w_mask;
    wire [PORTS*128-1:0] b_data, w_data;
    wire [30:0] absmax;
    wire any_we = w_en || attn_we || embed_we;
    wire [WORD_BITS-1:0] any_word = w_en ? w_word : attn_we ? attn_write_word : embed_word;
    wire [PORTS-1:0] any_mask = w_en ? w_mask : attn_we ? attn_bank : embed_bank;
    wire [PORTS*128-1:0] any_data = w_en ? w_data : attn_we ? attn_data : embed_data;

    lane_memory #(
        .PORTS(PORTS), .BANK_WORDS(BANK_WORDS), .WORD_BITS(WORD_BITS)
    ) u_memory (
        .clk, .rst, .a_en(a_en || attn_re), .a_word(attn_re ? attn_read_word : a_word),
        .a_data(read_data), .d_read_en(drain_read_en), .d_read_word(drain_read_word),
        .b_en, .b_word, .b_data, .d_we(drain_write_en), .d_word(drain_write_word),
        .d_data(drain_write_data), .w_en(any_we), .w_mask(any_mask), .w_word(any_word),
        .w_data(any_data), .absmax_clear, .absmax, .absmax_ready
    );

    lane_vector #(.PORTS(PORTS), .WORD_BITS(WORD_BITS)) u_vector (
        .clk, .rst, .op_word, .op_use_absmax, .active, .start(start_vector), .done(done_vector),
        .busy(busy_vector), .absmax_ready(all_absmax_ready), .absmax, .a_en, .a_word,
        .a_data(read_data), .b_en, .b_word, .b_data, .w_en, .w_mask, .w_word, .w_data,
        .gamma_ready, .gamma_en, .gamma_word, .gamma_data, .gamma_release,
        .act_we, .act_word, .act_data, .act_mant, .act_exp
    );

    wire settled;
    top_candidates #(.PORTS(PORTS)) u_candidates (
        .clk, .rst, .start(start_head), .active, .num_candidates(op_word[`HEAD_NUM_CANDIDATES +: 7]),
        .in_valid(logit_valid), .in_ready(logit_ready), .in_logit(logit), .in_id(logit_id),
        .port_done(done_matrix), .settled, .done(done_head), .held, .rd_index, .rd_logit, .rd_id
    );
    wire unused = &{1'b0, settled};
`ifndef SYNTHESIS
    if (VECTOR_WORDS % (4 * PORTS) != 0) begin : g_check
        initial $fatal(1, "lane_unit: VECTOR_WORDS = %0d must be a multiple of 4 * PORTS",
                       VECTOR_WORDS);
    end
`endif
endmodule
`default_nettype wire
