`default_nettype none
// Bench top: command_unit and program_store on one gather channel, as control_unit wires them.
module start_unit #(
    parameter int LANES = 4
) (
    input  wire                 clk,
    input  wire                 rst,
    input  wire                 ap_start,
    input  wire [63:0]          command_addr,
    input  wire [63:0]          program_addr,
    output wire                 g_valid,
    input  wire                 g_ready,
    output wire [63:0]          g_addr,
    output wire [15:0]          g_beats,
    input  wire                 gr_valid,
    input  wire [511:0]         gr_data,
    input  wire                 gr_last,
    output wire                 go,
    input  wire                 run_done,
    input  wire                 fault,
    input  wire                 fault_decode,
    input  wire [7:0]           fault_port,
    output wire [31:0]          cmd_sequence,
    output wire [7:0]           cmd_lanes,
    output wire [31:0]          cmd_slot_beats,
    output wire [31:0]          cmd_layer_beats,
    output wire [31:0]          cmd_k_beats,
    output wire [31:0]          cmd_v_beats,
    output wire [19:0]          cmd_window,
    output wire [LANES*16-1:0]  cmd_slot,
    output wire [LANES*16-1:0]  cmd_tail_slot,
    output wire [LANES*20-1:0]  cmd_prefix_len,
    output wire [LANES*20-1:0]  cmd_start,
    output wire [LANES*20-1:0]  cmd_num_read,
    output wire [LANES*16-1:0]  cmd_num_draft,
    output wire [LANES*20-1:0]  cmd_token_word,
    output wire [LANES*32-1:0]  cmd_ancestors,
    output wire [LANES*32-1:0]  cmd_output_index,
    output wire [LANES*64-1:0]  cmd_seed,
    output wire [LANES*32-1:0]  cmd_choice,
    output wire [LANES*32-1:0]  cmd_inv_t,
    input  wire [19:0]          token_word,
    output wire [31:0]          token_id,
    output wire                 publish,
    output wire [31:0]          status,
    output wire [31:0]          detail
);
    wire program_load, program_done, program_ok, command_valid, program_valid;
    wire [63:0] command_at, program_at;
    wire [15:0] command_beats, program_beats;
    wire [31:0] embed_rows;
    logic programming;
    always_ff @(posedge clk) begin
        if (program_load) programming <= 1'b1;
        if (program_done || rst) programming <= 1'b0;
    end
    assign g_valid = programming ? program_valid : command_valid;
    assign g_addr = programming ? program_at : command_at;
    assign g_beats = programming ? program_beats : command_beats;
    command_unit #(
        .LANES(LANES), .MAX_POSITIONS(4096), .MAX_READ_TOKENS(64), .MAX_DRAFT_TOKENS(16)
    ) u_command (
        .clk, .rst, .ap_start, .command_addr, .g_valid(command_valid),
        .g_ready(g_ready && !programming), .g_addr(command_at), .g_beats(command_beats),
        .gr_valid(gr_valid && !programming), .gr_data, .gr_last, .program_load, .program_done,
        .program_ok, .embed_rows, .go, .run_done, .fault, .fault_decode, .fault_port,
        .cmd_sequence, .cmd_lanes, .cmd_slot_beats, .cmd_layer_beats, .cmd_k_beats, .cmd_v_beats,
        .cmd_window, .cmd_slot, .cmd_tail_slot, .cmd_prefix_len, .cmd_start, .cmd_num_read,
        .cmd_num_draft, .cmd_token_word, .cmd_ancestors, .cmd_output_index, .cmd_seed,
        .cmd_choice, .cmd_inv_t, .token_word, .token_id, .publish, .status, .detail
    );
    program_store #(.PORTS(4), .PROGRAM_INSTRUCTIONS(16), .VECTOR_WORDS(16384), .PC_BITS(16)) u_program (
        .clk, .rst, .load(program_load), .load_addr(program_addr), .load_done(program_done),
        .load_ok(program_ok), .artefact_sha(), .embed_rows, .g_valid(program_valid),
        .g_ready(g_ready && programming), .g_addr(program_at), .g_beats(program_beats),
        .gr_valid(gr_valid && programming), .gr_data, .gr_last,
        .planner_pc(16'd0), .planner_word(), .sequencer_pc(16'd0), .sequencer_word()
    );
endmodule
`default_nettype wire
