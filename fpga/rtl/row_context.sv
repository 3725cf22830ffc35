`default_nettype none
// The passes on their way to the sequencer: a queue of descriptors, the input tokens of the rows
// of the front one, and what each row's draw needs.
//
// What: a descriptor is queued as soon as the scheduler has it, while read_planner keeps it until
//   it has walked the whole program (`fork_ready` tells the scheduler that both have it). Tokens
//   come from token memory, or, for fed back rows, from the draw of the pass before.
// Latency: LANES + 3 cycles from a new front to tokens_ready.
// Throughput: a row a cycle.
// Golden: fpga/golden/executor.py::GoldenExecutor
module row_context #(
    parameter int LANES = 4,  // rows of a pass
    parameter int DEPTH = 2   // descriptors that may wait, a power of two
) (
    input  wire                     clk,
    input  wire                     rst,
    input  wire                     run_clear,     // pulse: a start begins, forget everything
    // scheduler, and the planner's answer to the same descriptor
    input  wire                     pass_valid,
    output logic                    fork_ready,    // both have taken it
    output logic                    planner_valid,
    input  wire                     planner_ready,
    input  wire  [LANES-1:0]        pass_rows,
    input  wire  [LANES-1:0]        pass_sampled,
    input  wire  [LANES*LANES-1:0]  pass_visible,
    input  wire  [LANES*20-1:0]     pass_position,
    input  wire  [LANES*20-1:0]     pass_lo,
    input  wire  [LANES*16-1:0]     pass_tail_slot,
    input  wire  [LANES-1:0]        pass_feedback,
    input  wire  [LANES*20-1:0]     pass_token_word,
    input  wire  [LANES*8-1:0]      pass_lane,
    input  wire  [LANES*16-1:0]     pass_step,
    // command lanes
    input  wire  [LANES*32-1:0]     cmd_output_index,
    input  wire  [LANES*64-1:0]     cmd_seed,
    input  wire  [LANES*32-1:0]     cmd_choice,
    input  wire  [LANES*32-1:0]     cmd_inv_t,
    // token memory: one cycle
    output logic [19:0]             token_word,
    input  wire  [31:0]             token_id,
    // draws, by row
    input  wire                     drawn_valid,
    input  wire  [7:0]              drawn_row,
    input  wire  [31:0]             drawn_token,
    // the front descriptor
    output logic                    front_valid,
    input  wire                     front_pop,
    output logic                    tokens_ready,
    output logic [LANES-1:0]        front_rows,
    output logic [LANES-1:0]        front_sampled,
    output logic [LANES*LANES-1:0]  front_visible,
    output logic [LANES*20-1:0]     front_position,
    output logic [LANES*20-1:0]     front_lo,
    output logic [LANES*16-1:0]     front_tail_slot,
    output logic [LANES*8-1:0]      front_lane,
    output logic [LANES*16-1:0]     front_step,
    output logic [LANES*32-1:0]     row_token,
    output logic [LANES*32-1:0]     row_output_index,
    output logic [LANES*64-1:0]     row_seed,
    output logic [LANES*32-1:0]     row_choice,
    output logic [LANES*32-1:0]     row_inv_t
);
    localparam int WIDTH = LANES * (3 + LANES + 20 + 20 + 16 + 20 + 8 + 16);
    localparam int DEPTH_BITS = $clog2(DEPTH);
    localparam int LANE_BITS = LANES > 1 ? $clog2(LANES) : 1;

    // ---- queue
    logic [WIDTH-1:0] queue [0:DEPTH-1];
    logic [DEPTH_BITS:0] head, tail;
    logic queued, planned;  // of the scheduler's present descriptor
    wire [DEPTH_BITS:0] used = tail - head;
    wire room = used != (DEPTH_BITS + 1)'(DEPTH);
    wire push = pass_valid && !queued && room;
    wire plan = planner_valid && planner_ready;
    assign planner_valid = pass_valid && !planned;
    assign fork_ready = pass_valid && (queued || push) && (planned || plan);
    assign front_valid = used != '0;
    wire [LANES-1:0] front_feedback;
    wire [LANES*20-1:0] front_token_word;
    assign {front_rows, front_sampled, front_feedback, front_visible, front_position, front_lo,
            front_tail_slot, front_token_word, front_lane, front_step} = queue[head[DEPTH_BITS-1:0]];

    always_ff @(posedge clk) begin
        if (push) begin
            queue[tail[DEPTH_BITS-1:0]] <= {pass_rows, pass_sampled, pass_feedback, pass_visible,
                pass_position, pass_lo, pass_tail_slot, pass_token_word, pass_lane, pass_step};
            tail <= tail + (DEPTH_BITS + 1)'(1);
        end
        if (front_pop) head <= head + (DEPTH_BITS + 1)'(1);
        queued <= (queued || push) && !fork_ready;
        planned <= (planned || plan) && !fork_ready;
        if (rst || run_clear) begin
            head <= '0;
            tail <= '0;
            queued <= 1'b0;
            planned <= 1'b0;
        end
    end

    // ---- tokens drawn last, by command lane
    logic [LANES*32-1:0] drawn;
    wire [LANE_BITS-1:0] draw_row = drawn_row[LANE_BITS-1:0];
    wire [LANE_BITS-1:0] draw_lane = front_lane[draw_row*8 +: LANE_BITS];
    always_ff @(posedge clk)
        for (int l = 0; l < LANES; l++)
            if (drawn_valid && draw_lane == LANE_BITS'(l)) drawn[l*32 +: 32] <= drawn_token;

    // ---- tokens of the front: row `fetch` is addressed, row `came` is answered
    logic [LANE_BITS:0] fetch;
    logic [LANE_BITS-1:0] came;
    logic coming;
    wire [LANE_BITS-1:0] row = fetch[LANE_BITS-1:0];
    wire [LANE_BITS-1:0] came_lane = front_lane[came*8 +: LANE_BITS];
    wire more = front_valid && !front_pop && fetch != (LANE_BITS + 1)'(LANES);
    assign token_word = front_token_word[row*20 +: 20];
    assign tokens_ready = front_valid && fetch == (LANE_BITS + 1)'(LANES) && !coming;
    always_ff @(posedge clk) begin
        coming <= more;
        came <= row;
        if (more) fetch <= fetch + (LANE_BITS + 1)'(1);
        // By constant places: a part select at a variable place becomes a shifter.
        for (int l = 0; l < LANES; l++) if (coming && came == LANE_BITS'(l)) begin
            row_token[l*32 +: 32] <= front_feedback[l] ? drawn[came_lane*32 +: 32] : token_id;
            row_output_index[l*32 +: 32] <= cmd_output_index[came_lane*32 +: 32]
                + 32'(front_step[l*16 +: 16]);
            row_seed[l*64 +: 64] <= cmd_seed[came_lane*64 +: 64];
            row_choice[l*32 +: 32] <= cmd_choice[came_lane*32 +: 32];
            row_inv_t[l*32 +: 32] <= cmd_inv_t[came_lane*32 +: 32];
        end
        if (front_pop || rst || run_clear) begin
            fetch <= '0;
            coming <= 1'b0;
        end
    end
    wire unused = &{1'b0, drawn_row};
endmodule
`default_nettype wire
