`default_nettype none
// Runs the linked program for each pass: broadcasts the instruction, starts its unit, waits for
// the active lanes and ports, goes on.
//
// What: `op_word` holds the instruction in execution, stable from the start pulse until the unit
//   has answered. sampled_only instructions keep only sampled rows active and end the pass when
//   there are none. Operand `op_use_absmax`: the last writer wrote exactly the vector read now.
// Latency: 1 cycle from the last done of an instruction to the start pulse of the next.
// Throughput: one instruction at a time.
// Golden: fpga/golden/executor.py::GoldenExecutor
module sequencer #(
    parameter int LANES = 4,
    parameter int PORTS = 4,
    parameter int ARRAYS = 4,   // array slices of a port
    parameter int PC_BITS = 16
) (
    input  wire                     clk,
    input  wire                     rst,
    // pass descriptor (pass_scheduler through a FIFO); taken when the pass is finished
    input  wire                     pass_valid,
    output logic                    pass_ready,
    input  wire                     tokens_ready,   // the rows' input tokens are known
    input  wire  [LANES-1:0]        pass_rows,
    input  wire  [LANES-1:0]        pass_sampled,
    // program memory
    output logic [PC_BITS-1:0]      pc,
    input  wire  [511:0]            pc_word,        // one cycle after pc
    // broadcast
    output logic [511:0]            op_word,
    output logic [LANES-1:0]        op_active,      // lanes the instruction is for
    output logic                    op_dual,        // 2 * rows of the pass <= ARRAYS
    output logic                    op_use_absmax,
    output logic                    absmax_clear,   // pulse, before the first write of a vector
    // start pulses and answers (pulses; any order, waited for per active lane / port)
    output logic                    start_embed,
    input  wire                     done_embed,
    output logic                    start_vector,   // NORM_QUANT, QUANT, SILU_GATE
    input  wire  [LANES-1:0]        done_vector,
    output logic                    start_matrix,   // MATMUL, HEAD
    input  wire  [PORTS-1:0]        done_matrix,
    output logic                    start_head,     // HEAD, together with start_matrix: clears top_candidates
    input  wire  [LANES-1:0]        done_head,      // candidates final
    output logic                    start_rope,
    input  wire  [LANES-1:0]        done_rope,      // rotated, quantised, K/V broadcast and write requested
    output logic                    start_attention,
    input  wire  [LANES-1:0]        done_attention,
    output logic                    start_rope_row, // ROPE_ROW: arms the lanes, not waited for
    output logic                    start_draw,
    input  wire                     done_draw,      // all active lanes drawn
    // KV writes: how many ROPE_KV of this start are in memory (a reader waits for it)
    input  wire                     writes_idle,    // no KV write is waiting or unanswered
    input  wire                     run_clear,      // pulse: a start begins
    output logic [31:0]             kv_done_count,
    output logic                    idle,           // between passes
    output logic [PC_BITS-1:0]      op_index,       // of op_word, for the trace
    output logic                    op_running      // an instruction is in execution
);
    `include "isa.svh"
    localparam int VEC = 4 * PORTS;  // elements of a vector word
    localparam int VEC_BITS = $clog2(VEC);
    localparam int ROW_BITS = $clog2(LANES) + 1;
    localparam [1:0] S_PASS = 2'd0, S_NEXT = 2'd1, S_RUN = 2'd2;
    localparam int QUIET = 4;  // cycles of writes_idle after which the writes are in memory

    logic [1:0] state;
    logic settled;             // pc_word belongs to pc
    logic [LANES-1:0] lanes_left;
    logic [PORTS-1:0] ports_left;
    logic embed_left, draw_left;

    wire [LANES-1:0] lanes_after = lanes_left & ~(done_vector | done_head | done_rope | done_attention);
    wire [PORTS-1:0] ports_after = ports_left & ~done_matrix;
    wire complete = lanes_after == '0 && ports_after == '0
        && !(embed_left && !done_embed) && !(draw_left && !done_draw);
    wire advance = settled && (state == S_NEXT || (state == S_RUN && complete));

    // ---- the next instruction
    wire [7:0] opcode = pc_word[7:0];
    wire [LANES-1:0] active = pc_word[`ISA_FLAG_SAMPLED_BIT] ? op_active & pass_sampled : op_active;
    wire ends = opcode == `OP_END || active == '0;
    wire issue = advance && !ends;
    wire is_norm = opcode == `OP_NORMQUANT;
    wire is_quant = opcode == `OP_QUANT;
    wire is_silu = opcode == `OP_SILUGATE;
    wire is_vector = is_norm || is_quant || is_silu;
    wire is_head = opcode == `OP_HEAD;
    wire is_matmul = opcode == `OP_MATMUL;
    wire is_rope = opcode == `OP_ROPEKV;
    wire is_attention = opcode == `OP_ATTENTION;
    wire is_embed = opcode == `OP_EMBED;
    wire is_draw = opcode == `OP_DRAW;
    wire by_lanes = is_vector || is_rope || is_attention || is_head;

    // ---- which vector the running maximum covers: all of what the last writer wrote
    logic covers;
    logic [31:0] covered_word, covered_words;
    // NORM_QUANT and QUANT have these three at the same places
    wire [31:0] in_word = pc_word[`QUANT_IN_WORD +: 32];
    wire [31:0] in_words = pc_word[`QUANT_WORDS +: 32];
    wire [31:0] in_width = pc_word[`QUANT_WIDTH +: 32];
    wire [31:0] heads = pc_word[`ATTENTION_NUM_HEADS +: 32];
    wire [31:0] head_dim = pc_word[`ATTENTION_HEAD_DIM +: 32];
    wire [31:0] head_words = head_dim == 32'd128 ? heads << 7 : head_dim == 32'd64 ? heads << 6
        : heads << 5;
    wire [31:0] written = is_embed ? pc_word[`EMBED_WIDTH +: 32]  // elements
        : is_silu ? pc_word[`SILUGATE_WIDTH +: 32] : head_words;
    wire [31:0] out_word = is_matmul ? pc_word[`MATMUL_OUT_WORD +: 32]
        : is_embed ? pc_word[`EMBED_OUT_WORD +: 32]
        : is_silu ? pc_word[`SILUGATE_OUT_WORD +: 32] : pc_word[`ATTENTION_OUT_WORD +: 32];
    wire writes = is_embed || is_matmul || is_silu || is_attention;

    always_ff @(posedge clk) begin
        settled <= 1'b1;
        pass_ready <= 1'b0;
        absmax_clear <= issue && writes;
        start_embed <= issue && is_embed;
        start_vector <= issue && is_vector;
        start_matrix <= issue && (is_matmul || is_head);
        start_head <= issue && is_head;
        start_rope <= issue && is_rope;
        start_attention <= issue && is_attention;
        start_draw <= issue && is_draw;
        start_rope_row <= issue && opcode == `OP_ROPEROW;
        lanes_left <= lanes_after;
        ports_left <= ports_after;
        if (done_embed) embed_left <= 1'b0;
        if (done_draw) draw_left <= 1'b0;
        if (state == S_PASS && pass_valid && !pass_ready && tokens_ready) begin
            state <= S_NEXT;
            op_active <= pass_rows;
        end
        if (advance) begin
            state <= ends ? S_PASS : S_RUN;
            pass_ready <= ends;
            pc <= ends ? '0 : pc + PC_BITS'(1);
            settled <= 1'b0;
        end
        if (issue) begin
            op_word <= pc_word;
            op_index <= pc;
            op_active <= active;
            lanes_left <= by_lanes ? active : '0;
            ports_left <= is_matmul || is_head ? '1 : '0;
            embed_left <= is_embed;
            draw_left <= is_draw;
`ifdef BUG_SEQUENCER_1
            op_use_absmax <= covers && covered_word == in_word;
`else
            op_use_absmax <= covers && covered_word == in_word && covered_words == in_words
                && in_width == in_words << VEC_BITS;
`endif
            if (writes) begin
                covers <= is_matmul || written[VEC_BITS-1:0] == '0;
                covered_word <= out_word;
                covered_words <= is_matmul ? pc_word[`MATMUL_TILES +: 32] : written >> VEC_BITS;
            end
        end
        if (rst || run_clear) begin
            state <= S_PASS;
            pass_ready <= 1'b0;
            pc <= '0;
            settled <= 1'b0;
            lanes_left <= '0;
            ports_left <= '0;
            embed_left <= 1'b0;
            draw_left <= 1'b0;
            covers <= 1'b0;
        end
    end
    assign idle = state == S_PASS;
    assign op_running = state == S_RUN;

    // ---- lanes of the pass, and whether two slices can share a lane
    logic [ROW_BITS-1:0] rows;
    always_comb begin
        rows = '0;
        for (int r = 0; r < LANES; r++) rows = rows + ROW_BITS'(pass_rows[r]);
    end
    always_ff @(posedge clk) if (state == S_PASS) op_dual <= 2 * 32'(rows) <= 32'(ARRAYS);

    // ---- ROPE_KV instructions whose writes are in memory
    logic [31:0] rope_count;
    logic [2:0] quiet;
    wire rope_ends = state == S_RUN && op_word[7:0] == `OP_ROPEKV && complete && settled;
    always_ff @(posedge clk) begin
        if (rope_ends) rope_count <= rope_count + 32'd1;
`ifdef BUG_SEQUENCER_2
        if (rope_ends || rope_count == kv_done_count) quiet <= 3'd0;
`else
        if (!writes_idle || rope_ends || rope_count == kv_done_count) quiet <= 3'd0;
`endif
        else if (quiet == 3'(QUIET)) kv_done_count <= rope_count;
        else quiet <= quiet + 3'd1;
        if (rst || run_clear) begin
            rope_count <= 32'd0;
            kv_done_count <= 32'd0;
        end
    end
endmodule
`default_nettype wire
