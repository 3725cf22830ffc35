`default_nettype none
// Bench top: sequencer with a small code memory that answers in one cycle.
module sequencer_bench #(
    parameter int LANES = 4,
    parameter int PORTS = 2,
    parameter int ARRAYS = 4
) (
    input  wire              clk,
    input  wire              rst,
    input  wire              pass_valid,
    output wire              pass_ready,
    input  wire              tokens_ready,
    input  wire [LANES-1:0]  pass_rows,
    input  wire [LANES-1:0]  pass_sampled,
    output wire [511:0]      op_word,
    output wire [LANES-1:0]  op_active,
    output wire              op_dual,
    output wire              op_use_absmax,
    output wire              absmax_clear,
    output wire              start_embed,
    input  wire              done_embed,
    output wire              start_vector,
    input  wire [LANES-1:0]  done_vector,
    output wire              start_matrix,
    input  wire [PORTS-1:0]  done_matrix,
    output wire              start_head,
    input  wire [LANES-1:0]  done_head,
    output wire              start_rope,
    input  wire [LANES-1:0]  done_rope,
    output wire              start_attention,
    input  wire [LANES-1:0]  done_attention,
    output wire              start_rope_row,
    output wire              start_draw,
    input  wire              done_draw,
    input  wire              writes_idle,
    input  wire              run_clear,
    output wire [31:0]       kv_done_count,
    output wire [15:0]       op_index
);
    logic [511:0] code [0:31];
    logic [511:0] pc_word;
    wire [15:0] pc;
    always_ff @(posedge clk) pc_word <= code[pc[4:0]];
    sequencer #(.LANES(LANES), .PORTS(PORTS), .ARRAYS(ARRAYS)) u_sequencer (
        .clk, .rst, .pass_valid, .pass_ready, .tokens_ready, .pass_rows, .pass_sampled, .pc,
        .pc_word, .op_word, .op_active, .op_dual, .op_use_absmax, .absmax_clear, .start_embed,
        .done_embed, .start_vector, .done_vector, .start_matrix, .done_matrix, .start_head,
        .done_head, .start_rope, .done_rope, .start_attention, .done_attention, .start_rope_row,
        .start_draw, .done_draw, .writes_idle, .run_clear, .kv_done_count, .idle(), .op_index,
        .op_running()
    );
endmodule
`default_nettype wire
