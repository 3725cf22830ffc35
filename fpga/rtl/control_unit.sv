`default_nettype none
// Everything that decides: takes a start, loads command and program, gives out passes, walks the
// program, plans the reads, writes the result.
//
// What: command_unit, program_store, pass_scheduler, row_context, read_planner, sequencer and
//   result_unit, wired; and what ends a start: all passes run, all memory traffic answered.
// Latency: those of its parts.
// Throughput: one start at a time.
// Golden: fpga/golden/executor.py::GoldenExecutor, sim/kernel.py::DraftKernel
module control_unit #(
    parameter int PORTS = 4,             // memory ports
    parameter int LANES = 4,             // rows of a pass, lanes of a command
    parameter int ARRAYS = 4,            // array slices of a port
    parameter int VECTOR_WORDS = 16384,  // a program needing more is refused
    parameter int MAX_POSITIONS = 4096,
    parameter int PROGRAM_INSTRUCTIONS = 512,
    parameter int MAX_READ_TOKENS = 512,
    parameter int MAX_DRAFT_TOKENS = 16,
    parameter logic [127:0] BUILD_HASH = 128'd0
) (
    input  wire                      clk,
    input  wire                      rst,
    // control registers
    input  wire                      ap_start,      // pulse
    output wire                      ap_done,       // pulse: the result is in memory
    output logic [63:0]              cycles,        // of the last start
    input  wire                      drain,         // level: give out no further pass
    input  wire  [63:0]              command_addr,
    input  wire  [63:0]              result_addr,
    input  wire  [63:0]              program_addr,
    // memory ports
    output wire                      run_clear,     // pulse: a start begins
    input  wire  [PORTS-1:0]         port_idle,     // nothing in flight
    input  wire  [PORTS-1:0]         port_drained,  // and no command or beat left
    input  wire  [PORTS-1:0]         port_error,    // sticky: an answer was an error
    input  wire  [PORTS-1:0]         port_decode,   // it was a DECERR
    input  wire  [PORTS*64-1:0]      port_beats,    // read since run_clear
    output wire  [PORTS-1:0]         s_valid,       // stream commands
    input  wire  [PORTS-1:0]         s_ready,
    output wire  [133+LANES-1:0]     s_command,
    // port 0: gather and writes
    output wire                      g_valid,
    input  wire                      g_ready,
    output wire  [63:0]              g_addr,
    output wire  [15:0]              g_beats,
    input  wire                      gr_valid,
    input  wire  [511:0]             gr_data,
    input  wire                      gr_last,
    output wire                      w_valid,
    input  wire                      w_ready,
    output wire  [63:0]              w_addr,
    output wire  [511:0]             w_data,
    output wire  [63:0]              w_strobe,
    input  wire                      result_idle,   // port 0 has no unanswered write
    input  wire                      kv_idle,       // no KV write waits or is unanswered
    // broadcast
    output wire  [511:0]             op_word,
    output wire  [LANES-1:0]         op_active,
    output wire                      op_dual,
    output wire                      op_use_absmax,
    output wire                      absmax_clear,
    output wire                      start_embed,
    input  wire                      done_embed,
    output wire                      start_vector,
    input  wire  [LANES-1:0]         done_vector,
    output wire                      start_matrix,
    input  wire  [PORTS-1:0]         done_matrix,
    output wire                      start_head,
    input  wire  [LANES-1:0]         done_head,
    output wire                      start_rope_row,
    output wire                      start_rope,
    input  wire  [LANES-1:0]         done_rope,
    output wire                      start_attention,
    input  wire  [LANES-1:0]         done_attention,
    output wire                      start_draw,
    input  wire                      done_draw,
    // rows of the pass in execution
    output wire  [LANES*LANES-1:0]   row_visible,
    output wire  [LANES*20-1:0]      row_position,
    output wire  [LANES*20-1:0]      row_lo,
    output wire  [LANES*16-1:0]      row_tail_slot,
    output wire  [LANES*32-1:0]      row_token,
    output wire  [LANES*32-1:0]      row_output_index,
    output wire  [LANES*64-1:0]      row_seed,
    output wire  [LANES*32-1:0]      row_choice,
    output wire  [LANES*32-1:0]      row_inv_t,
    output wire  [31:0]              cmd_slot_beats,
    output wire  [31:0]              cmd_layer_beats,
    output wire  [31:0]              cmd_k_beats,
    output wire  [31:0]              cmd_v_beats,
    // drawn tokens
    input  wire                      draw_valid,
    output wire                      draw_ready,
    input  wire  [7:0]               draw_row,
    input  wire  [511:0]             draw_beat,
    // trace
    output wire  [15:0]              op_index,
    output wire                      op_running,
    output wire                      fence_wait,   // the planner waits for KV writes
    output wire                      running       // a start is in work
);
    `include "buffers.svh"
    localparam int LANE_BITS = LANES > 1 ? $clog2(LANES) : 1;
    localparam int PORT_BITS = PORTS > 1 ? $clog2(PORTS) : 1;
    localparam int QUIET = 8;  // cycles of silence that end a start
    assign run_clear = ap_start;

    // ---- command, program, tokens
    wire go, publish, program_load, program_done, program_ok, fault, fault_decode;
    wire command_g_valid, program_g_valid;
    wire [63:0] command_g_addr, program_g_addr;
    wire [15:0] command_g_beats, program_g_beats;
    wire [31:0] embed_rows, token_id, status, detail, cmd_sequence, passes, tokens;
    wire [255:0] artefact_sha;
    wire [19:0] token_word, cmd_window;
    wire [7:0] fault_port, cmd_lanes;
    wire [LANES*16-1:0] cmd_slot, cmd_tail_slot, cmd_num_draft;
    wire [LANES*20-1:0] cmd_prefix_len, cmd_start, cmd_num_read, cmd_token_word;
    wire [LANES*32-1:0] cmd_ancestors, cmd_output_index, cmd_choice, cmd_inv_t;
    wire [LANES*64-1:0] cmd_seed;
    logic start_later, run_done, programming;
    always_ff @(posedge clk) begin
        start_later <= ap_start && !rst;
        if (program_load) programming <= 1'b1;
        if (program_done || rst) programming <= 1'b0;
    end
    assign g_valid = programming ? program_g_valid : command_g_valid;
    assign g_addr = programming ? program_g_addr : command_g_addr;
    assign g_beats = programming ? program_g_beats : command_g_beats;

    command_unit #(
        .LANES(LANES), .MAX_POSITIONS(MAX_POSITIONS), .MAX_READ_TOKENS(MAX_READ_TOKENS),
        .MAX_DRAFT_TOKENS(MAX_DRAFT_TOKENS)
    ) u_command (
        .clk, .rst, .ap_start(start_later), .command_addr,
        .g_valid(command_g_valid), .g_ready(g_ready && !programming), .g_addr(command_g_addr),
        .g_beats(command_g_beats), .gr_valid(gr_valid && !programming), .gr_data, .gr_last,
        .program_load, .program_done, .program_ok, .embed_rows,
        .go, .run_done, .fault, .fault_decode, .fault_port,
        .cmd_sequence, .cmd_lanes, .cmd_slot_beats, .cmd_layer_beats, .cmd_k_beats, .cmd_v_beats,
        .cmd_window, .cmd_slot, .cmd_tail_slot, .cmd_prefix_len,
        .cmd_start, .cmd_num_read, .cmd_num_draft, .cmd_token_word, .cmd_ancestors,
        .cmd_output_index, .cmd_seed, .cmd_choice, .cmd_inv_t, .token_word, .token_id,
        .publish, .status, .detail
    );

    wire [15:0] planner_pc, pc;
    wire [511:0] planner_word, pc_word;
    program_store #(
        .PORTS(PORTS), .PROGRAM_INSTRUCTIONS(PROGRAM_INSTRUCTIONS), .VECTOR_WORDS(VECTOR_WORDS),
        .PC_BITS(16)
    ) u_program (
        .clk, .rst, .load(program_load), .load_addr(program_addr), .load_done(program_done),
        .load_ok(program_ok), .artefact_sha, .embed_rows,
        .g_valid(program_g_valid), .g_ready(g_ready && programming), .g_addr(program_g_addr),
        .g_beats(program_g_beats), .gr_valid(gr_valid && programming), .gr_data, .gr_last,
        .planner_pc, .planner_word, .sequencer_pc(pc), .sequencer_word(pc_word)
    );

    // ---- passes
    wire finished, pass_valid, fork_ready, planner_valid, planner_ready;
    wire [LANES-1:0] pass_rows, pass_sampled, pass_leader, pass_feedback;
    wire [LANES*LANES-1:0] pass_group, pass_visible;
    wire [LANES*20-1:0] pass_position, pass_lo, pass_mem_len, pass_prefix_len, pass_token_word;
    wire [LANES*16-1:0] pass_slot, pass_tail_slot, pass_step, row_step;
    wire [LANES*8-1:0] pass_lane, row_lane;
    pass_scheduler #(.LANES(LANES)) u_scheduler (
        .clk, .rst, .go, .stop(fault || drain), .finished, .passes, .tokens,
        .cmd_lanes, .cmd_window, .cmd_slot, .cmd_tail_slot, .cmd_prefix_len, .cmd_start,
        .cmd_num_read, .cmd_num_draft, .cmd_token_word, .cmd_ancestors,
        .pass_valid, .pass_ready(fork_ready), .pass_rows, .pass_sampled, .pass_leader,
        .pass_group, .pass_visible, .pass_position, .pass_lo, .pass_mem_len, .pass_prefix_len,
        .pass_slot, .pass_tail_slot, .pass_feedback, .pass_token_word, .pass_lane, .pass_step
    );

    wire front_valid, front_pop, tokens_ready;
    wire [LANES-1:0] front_rows, front_sampled;
    row_context #(.LANES(LANES)) u_rows (
        .clk, .rst, .run_clear, .pass_valid, .fork_ready, .planner_valid, .planner_ready,
        .pass_rows, .pass_sampled, .pass_visible, .pass_position, .pass_lo, .pass_tail_slot,
        .pass_feedback, .pass_token_word, .pass_lane, .pass_step,
        .cmd_output_index, .cmd_seed, .cmd_choice, .cmd_inv_t, .token_word, .token_id,
        .drawn_valid(draw_valid && draw_ready), .drawn_row(draw_row), .drawn_token(draw_beat[`TOKEN_TOKEN_ID +: 32]),
        .front_valid, .front_pop, .tokens_ready, .front_rows, .front_sampled,
        .front_visible(row_visible), .front_position(row_position), .front_lo(row_lo),
        .front_tail_slot(row_tail_slot), .front_lane(row_lane), .front_step(row_step),
        .row_token, .row_output_index, .row_seed, .row_choice, .row_inv_t
    );

    // ---- reads
    wire planner_idle;
    wire [31:0] kv_done_count;
    read_planner #(.PORTS(PORTS), .LANES(LANES), .PC_BITS(16)) u_planner (
        .clk, .rst, .clear(run_clear), .pc(planner_pc), .pc_word(planner_word),
        .cmd_slot_beats, .cmd_layer_beats, .cmd_k_beats, .cmd_v_beats,
        .pass_valid(planner_valid), .pass_ready(planner_ready), .pass_rows, .pass_sampled,
        .pass_leader, .pass_group, .pass_position, .pass_lo, .pass_mem_len, .pass_prefix_len,
        .pass_slot, .pass_tail_slot, .kv_done_count, .idle(planner_idle), .fence_wait,
        .s_valid, .s_ready, .s_command
    );

    // ---- instructions
    wire sequencer_idle;
    sequencer #(.LANES(LANES), .PORTS(PORTS), .ARRAYS(ARRAYS), .PC_BITS(16)) u_sequencer (
        .clk, .rst, .pass_valid(front_valid), .pass_ready(front_pop), .tokens_ready,
        .pass_rows(front_rows), .pass_sampled(front_sampled), .pc, .pc_word,
        .op_word, .op_active, .op_dual, .op_use_absmax, .absmax_clear,
        .start_embed, .done_embed, .start_vector, .done_vector, .start_matrix, .done_matrix,
        .start_head, .done_head, .start_rope, .done_rope, .start_attention, .done_attention,
        .start_rope_row, .start_draw, .done_draw,
        .writes_idle(kv_idle), .run_clear, .kv_done_count, .idle(sequencer_idle), .op_index,
        .op_running
    );

    // ---- result
    wire result_ready, published;
    wire [LANE_BITS-1:0] draw_at = draw_row[LANE_BITS-1:0];
    assign draw_ready = result_ready;
    assign ap_done = published;
    logic [63:0] beats_read;
    result_unit #(
        .LANES(LANES), .MAX_DRAFT_TOKENS(MAX_DRAFT_TOKENS), .BUILD_HASH(BUILD_HASH)
    ) u_result (
        .clk, .rst, .result_addr, .draw_valid, .draw_ready(result_ready),
        .draw_lane(row_lane[draw_at*8 +: 8]), .draw_step(row_step[draw_at*16 +: 16]), .draw_beat,
        .publish, .status, .detail, .sequence_number(cmd_sequence),
        .num_lanes(status == `STATUS_OK ? cmd_lanes : 8'd0), .cycles, .beats_read,
        .artefact_sha(program_ok ? artefact_sha : 256'd0),
        .passes({32'd0, passes}), .tokens_read({32'd0, tokens}),
        .lane_slot(cmd_slot), .lane_count(cmd_num_draft), .published,
        .w_valid, .w_ready, .w_addr, .w_data, .w_strobe, .writes_idle(result_idle)
    );

    // ---- when a start is over: nothing left anywhere, for some cycles; then sum up the beats
    logic in_passes, collecting;
    logic [3:0] quiet;
    logic [PORT_BITS:0] port;
    wire [PORT_BITS-1:0] port_at = port[PORT_BITS-1:0];
    wire silent = finished && !front_valid && sequencer_idle && planner_idle && kv_idle
        && result_idle && !w_valid && port_drained == '1 && port_idle == '1;
    always_ff @(posedge clk) begin
        run_done <= 1'b0;
        quiet <= in_passes && silent ? quiet + 4'd1 : 4'd0;
        if (go) in_passes <= 1'b1;
        if (in_passes && quiet == 4'(QUIET)) begin
            in_passes <= 1'b0;
            collecting <= 1'b1;
            port <= '0;
            beats_read <= 64'd0;
        end
        if (collecting) begin
            beats_read <= beats_read + port_beats[port_at*64 +: 64];
            port <= port + (PORT_BITS + 1)'(1);
            if (port == (PORT_BITS + 1)'(PORTS - 1)) begin
                collecting <= 1'b0;
                run_done <= 1'b1;
            end
        end
        if (rst || ap_start) begin
            in_passes <= 1'b0;
            collecting <= 1'b0;
            beats_read <= 64'd0;
        end
    end

    // ---- faults: the lowest port that saw one; sticky there until the next start
    logic [7:0] worst;
    logic worst_decode;
    always_comb begin
        worst = 8'd0;
        worst_decode = 1'b0;
        for (int p = PORTS - 1; p >= 0; p--) if (port_error[p]) begin
            worst = 8'(p);
            worst_decode = port_decode[p];
        end
    end
    assign fault = port_error != '0;
    assign fault_port = worst;
    assign fault_decode = worst_decode;

    // ---- cycles: from the start to the result's going out
    logic counting;
    assign running = counting;
    always_ff @(posedge clk) begin
        if (counting) cycles <= cycles + 64'd1;
        if (publish) counting <= 1'b0;
        if (ap_start) begin
            cycles <= 64'd1;
            counting <= 1'b1;
        end
        if (rst) counting <= 1'b0;
    end
endmodule
`default_nettype wire
