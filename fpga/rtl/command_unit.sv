`default_nettype none
// Takes a start: gathers and checks the command buffer, has the program loaded when it changed,
// gathers the tokens, starts the pass scheduler, and tells the result unit how it ended.
//
// Latency: two round trips to memory from a start to `go`, three with a new program.
// Throughput: a token a cycle is checked.
// Golden: fpga/driver/buffers.py::decode_command, sim/kernel.py::DraftKernel
module command_unit #(
    parameter int LANES = 4,             // lanes of a command
    parameter int MAX_POSITIONS = 4096,  // positions a slot may have
    parameter int MAX_READ_TOKENS = 512, // tokens a lane may read in a start
    parameter int MAX_DRAFT_TOKENS = 16  // tokens a lane may draft in a start
) (
    input  wire                     clk,
    input  wire                     rst,
    input  wire                     ap_start,       // pulse: a start was written
    input  wire  [63:0]             command_addr,
    // gather on port 0 (shared with program_store: never both at once)
    output logic                    g_valid,
    input  wire                     g_ready,
    output logic [63:0]             g_addr,
    output logic [15:0]             g_beats,
    input  wire                     gr_valid,
    input  wire  [511:0]            gr_data,
    input  wire                     gr_last,
    // program store
    output logic                    program_load,
    input  wire                     program_done,
    input  wire                     program_ok,
    input  wire  [31:0]             embed_rows,
    // run
    output logic                    go,             // pulse: cmd_* valid, run the passes
    input  wire                     run_done,       // pulse: last pass finished, all writes answered
    input  wire                     fault,          // level: a port saw an AXI error
    input  wire                     fault_decode,   // DECERR (else SLVERR)
    input  wire  [7:0]              fault_port,
    // command
    output logic [31:0]             cmd_sequence,
    output logic [7:0]              cmd_lanes,
    output logic [31:0]             cmd_slot_beats,   // KV strides, in beats
    output logic [31:0]             cmd_layer_beats,
    output logic [31:0]             cmd_k_beats,
    output logic [31:0]             cmd_v_beats,
    output logic [19:0]             cmd_window,
    output logic [LANES*16-1:0]     cmd_slot,
    output logic [LANES*16-1:0]     cmd_tail_slot,
    output logic [LANES*20-1:0]     cmd_prefix_len,
    output logic [LANES*20-1:0]     cmd_start,
    output logic [LANES*20-1:0]     cmd_num_read,
    output logic [LANES*16-1:0]     cmd_num_draft,
    output logic [LANES*20-1:0]     cmd_token_word,
    output logic [LANES*32-1:0]     cmd_ancestors,
    output logic [LANES*32-1:0]     cmd_output_index,
    output logic [LANES*64-1:0]     cmd_seed,
    output logic [LANES*32-1:0]     cmd_choice,
    output logic [LANES*32-1:0]     cmd_inv_t,
    // token memory: data one cycle after the address
    input  wire  [19:0]             token_word,
    output logic [31:0]             token_id,
    // result
    output logic                    publish,        // pulse: write the result, then ap_done
    output logic [31:0]             status,
    output logic [31:0]             detail
);
    `include "registers.svh"
    `include "buffers.svh"
    localparam int TOKEN_BEATS = (LANES * MAX_READ_TOKENS + 15) / 16;
    localparam int FIRST_TOKEN_BEATS = TOKEN_BEATS < 2 ? TOKEN_BEATS : 2;  // fetched with the command
    localparam int TOKENS_WORD = 16 * (1 + LANES);  // where tokens begin in the command buffer
    localparam int BUFFER_WORDS = TOKENS_WORD + 16 * TOKEN_BEATS;
    localparam int HEAD_BEATS = 1 + LANES + FIRST_TOKEN_BEATS;
    localparam int TOKEN_BITS = TOKEN_BEATS > 1 ? $clog2(TOKEN_BEATS) : 1;
    localparam int LANE_BITS = LANES > 1 ? $clog2(LANES) : 1;
    localparam [3:0] S_IDLE = 4'd0, S_COMMAND = 4'd1, S_CHECK = 4'd2, S_PROGRAM = 4'd3,
        S_TOKENS = 4'd4, S_SCAN = 4'd5, S_SCANNED = 4'd6, S_RUN = 4'd7, S_PUBLISH = 4'd8;

    logic [3:0] state;
    logic [15:0] beat;           // of the command buffer, coming next
    logic bad_command, bad_lane;
    logic [7:0] which_lane;      // first bad one
    logic [31:0] held_id, program_id, num_slots, context_tokens, last_word;
    logic held;

    // ---- the command as it comes
    wire comes_header = state == S_COMMAND && gr_valid && beat == 16'd0;
    wire comes_lane = state == S_COMMAND && gr_valid && beat != 16'd0 && beat <= 16'(cmd_lanes)
        && beat <= 16'(LANES);
    wire [15:0] lane_index = beat - 16'd1;
    wire [LANE_BITS-1:0] into = lane_index[LANE_BITS-1:0];
    wire [31:0] lane_slot = gr_data[`LANE_SLOT +: 32], lane_tail = gr_data[`LANE_TAIL_SLOT +: 32];
    wire [31:0] lane_start = gr_data[`LANE_START +: 32], lane_read = gr_data[`LANE_NUM_READ +: 32];
    wire [31:0] lane_drafts = gr_data[`LANE_NUM_DRAFT +: 32], lane_at = gr_data[`LANE_TOKEN_WORD +: 32];
    wire [31:0] num_lanes = gr_data[`COMMAND_NUM_LANES +: 32], window = gr_data[`COMMAND_WINDOW +: 32];
    wire [33:0] lane_end = 34'(lane_start) + 34'(lane_read)
        + (lane_drafts != 32'd0 ? 34'(lane_drafts) - 34'd1 : 34'd0);
    wire [32:0] tokens_end = 33'(lane_at) + 33'(lane_read);
    wire lane_outside = lane_at < 32'(TOKENS_WORD) || tokens_end > 33'(BUFFER_WORDS);
    wire lane_wrong = lane_slot >= num_slots || lane_tail >= num_slots || lane_read == 32'd0
        || lane_read > 32'(MAX_READ_TOKENS) || lane_drafts > 32'(MAX_DRAFT_TOKENS)
        || lane_end > 34'(context_tokens);
    wire [31:0] lane_word = lane_at - 32'(TOKENS_WORD);

    always_ff @(posedge clk) begin
        if (comes_header) begin
            cmd_sequence <= gr_data[`COMMAND_SEQUENCE +: 32];
            cmd_lanes <= num_lanes > 32'(LANES) ? 8'd0 : num_lanes[7:0];
            program_id <= gr_data[`COMMAND_PROGRAM_ID +: 32];
            num_slots <= gr_data[`COMMAND_NUM_SLOTS +: 32];
            context_tokens <= gr_data[`COMMAND_CONTEXT_TOKENS +: 32];
            cmd_slot_beats <= gr_data[`COMMAND_SLOT_BEATS +: 32];
            cmd_layer_beats <= gr_data[`COMMAND_LAYER_BEATS +: 32];
            cmd_k_beats <= gr_data[`COMMAND_K_BEATS +: 32];
            cmd_v_beats <= gr_data[`COMMAND_V_BEATS +: 32];
            cmd_window <= window >= 32'(MAX_POSITIONS) ? 20'd0 : window[19:0];
        end
        // By constant places: a part select at a variable place becomes a shifter.
        for (int l = 0; l < LANES; l++) if (comes_lane && into == LANE_BITS'(l)) begin
            cmd_slot[l*16 +: 16] <= lane_slot[15:0];
            cmd_tail_slot[l*16 +: 16] <= lane_tail[15:0];
            cmd_prefix_len[l*20 +: 20] <= gr_data[`LANE_PREFIX_LEN +: 20];
            cmd_start[l*20 +: 20] <= lane_start[19:0];
            cmd_num_read[l*20 +: 20] <= lane_read[19:0];
            cmd_num_draft[l*16 +: 16] <= lane_drafts[15:0];
            cmd_output_index[l*32 +: 32] <= gr_data[`LANE_OUTPUT_INDEX +: 32];
            cmd_seed[l*64 +: 64] <= gr_data[`LANE_SEED_LO +: 64];
            cmd_choice[l*32 +: 32] <= gr_data[`LANE_CHOICE_INDEX +: 32];
            cmd_inv_t[l*32 +: 32] <= gr_data[`LANE_INV_TEMPERATURE +: 32];
            cmd_token_word[l*20 +: 20] <= lane_word[19:0];
            cmd_ancestors[l*32 +: 32] <= gr_data[`LANE_ANCESTOR_MASK +: 32];
        end
    end

    // ---- token memory: whole beats; a word is picked a cycle after its address
    logic [511:0] tokens [0:TOKEN_BEATS-1];
    logic [511:0] token_beat;
    logic [3:0] token_lane;
    logic [19:0] scan_word;
    wire comes_token = (state == S_COMMAND || state == S_TOKENS) && gr_valid && beat > 16'(LANES);
    wire [15:0] token_into = beat - 16'(1 + LANES);
    wire [19:0] token_address = state == S_RUN ? token_word : scan_word;
    always_ff @(posedge clk) begin
        if (comes_token) tokens[token_into[TOKEN_BITS-1:0]] <= gr_data;
        token_beat <= tokens[token_address[4 +: TOKEN_BITS]];
        token_lane <= token_address[3:0];
    end
    assign token_id = token_beat[token_lane*32 +: 32];

    // ---- scan: every token must have a row in the embedding
    logic [7:0] scan_lane, scanned_lane;
    logic [19:0] scan_left;
    logic scanned;
    wire [7:0] next_lane = scan_lane + 8'd1;
    wire [LANE_BITS-1:0] following = next_lane[LANE_BITS-1:0];

    wire [31:0] token_words = last_word - 32'(TOKENS_WORD) + 32'd15;
    wire [27:0] token_beats = token_words[31:4];  // in use
    wire rest = token_beats > 28'(FIRST_TOKEN_BEATS) && last_word != 32'd0;

    assign g_addr = command_addr + (state == S_TOKENS ? 64'(64 * HEAD_BEATS) : 64'd0);
    assign g_beats = state == S_TOKENS ? 16'(token_beats - 28'(FIRST_TOKEN_BEATS)) : 16'(HEAD_BEATS);

    always_ff @(posedge clk) begin
        program_load <= 1'b0;
        go <= 1'b0;
        publish <= 1'b0;
        scanned <= 1'b0;
        if (g_ready) g_valid <= 1'b0;
        if (gr_valid) beat <= beat + 16'd1;
        case (state)
            S_IDLE: if (ap_start) begin
                state <= S_COMMAND;
                g_valid <= 1'b1;
                beat <= 16'd0;
                bad_command <= 1'b0;
                bad_lane <= 1'b0;
                last_word <= 32'd0;
                status <= `STATUS_OK;
                detail <= 32'd0;
                cmd_sequence <= 32'd0;
            end
            S_COMMAND: begin
                if (comes_header)
                    bad_command <= gr_data[`COMMAND_MAGIC +: 32] != `COMMAND_MAGIC_VALUE
                        || gr_data[`COMMAND_INTERFACE_VERSION +: 32] != `REG_INTERFACE_VERSION
                        || num_lanes > 32'(LANES)
                        || gr_data[`COMMAND_CONTEXT_TOKENS +: 32] > 32'(MAX_POSITIONS);
                if (comes_lane) begin
                    if (lane_outside) bad_command <= 1'b1;
                    if (tokens_end[31:0] > last_word) last_word <= tokens_end[31:0];
                    if (lane_wrong && !bad_lane) begin
                        bad_lane <= 1'b1;
                        which_lane <= lane_index[7:0];
                    end
                end
                if (gr_valid && gr_last) state <= S_CHECK;
            end
            S_CHECK: begin
                state <= S_PUBLISH;
                if (bad_command) status <= `STATUS_BAD_COMMAND;
                else if (!held || held_id != program_id) begin
                    program_load <= 1'b1;
                    held <= 1'b0;
                    state <= S_PROGRAM;
                end else begin
                    state <= rest ? S_TOKENS : S_SCAN;
                    g_valid <= rest;
                end
                scan_lane <= 8'd0;
                scan_left <= cmd_num_read[19:0];
                scan_word <= cmd_token_word[19:0];
            end
            S_PROGRAM: if (program_done) begin
                held <= program_ok && !fault;
                held_id <= program_id;
                if (program_ok) begin
                    state <= rest ? S_TOKENS : S_SCAN;
                    g_valid <= rest;
                end else begin
                    status <= `STATUS_BAD_PROGRAM;
                    state <= S_PUBLISH;
                end
            end
            S_TOKENS: if (gr_valid && gr_last) state <= S_SCAN;
            S_SCAN: if (scan_lane >= (bad_lane ? which_lane : cmd_lanes)) state <= S_SCANNED;
            else begin
                scanned <= 1'b1;
                scanned_lane <= scan_lane;
                scan_word <= scan_word + 20'd1;
                scan_left <= scan_left - 20'd1;
                if (scan_left == 20'd1) begin
                    scan_lane <= next_lane;
                    scan_left <= cmd_num_read[following*20 +: 20];
                    scan_word <= cmd_token_word[following*20 +: 20];
                end
            end
            S_SCANNED: begin
                state <= bad_lane || fault ? S_PUBLISH : S_RUN;
                go <= !bad_lane && !fault;
                if (bad_lane) begin
                    status <= `STATUS_BAD_LANE;
                    detail <= 32'(which_lane);
                end
            end
            S_RUN: if (run_done) state <= S_PUBLISH;
            default: begin
                state <= S_IDLE;
                publish <= 1'b1;
                if (fault) begin
                    status <= fault_decode ? `STATUS_DECODE_ERROR : `STATUS_SLAVE_ERROR;
                    detail <= 32'(fault_port);
                end
            end
        endcase
`ifdef BUG_COMMAND_UNIT_1
        if (scanned && !bad_lane && token_id > embed_rows) begin
`else
        if (scanned && !bad_lane && token_id >= embed_rows) begin
`endif
            bad_lane <= 1'b1;
            which_lane <= scanned_lane;
        end
        if (rst) begin
            state <= S_IDLE;
            g_valid <= 1'b0;
            held <= 1'b0;
        end
    end
    wire unused = &{1'b0, lane_index, lane_word, token_into, token_address, token_words};
endmodule
`default_nettype wire
