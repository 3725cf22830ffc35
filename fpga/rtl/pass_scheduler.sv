`default_nettype none
// Order of a start's rows: cuts the command's tokens into passes and describes each of them.
//
// What: rows that only fill the cache, then rows whose successor is drawn, packed so that only
//   the first pass is short; then one pass for each further drafted token. A pass's rows always
//   lie in lanes 0..rows-1. Nothing here depends on computed values, so that a reader may run
//   ahead; drawn tokens are filled in later by the sequencer.
//
// A descriptor (all `pass_*`, stable while pass_valid) goes to two consumers at once: both must
// be ready (pass_ready = planner ready && FIFO of the sequencer ready).
// Latency: LANES + 3 cycles from one descriptor to the next.
// Throughput: a descriptor every LANES + 1 cycles.
// Golden: sim/schedule.py::card_passes
module pass_scheduler #(
    parameter int LANES = 4  // rows of a pass, lanes of a command
) (
    input  wire                     clk,
    input  wire                     rst,
    input  wire                     go,        // pulse: cmd_* are valid and stay so until `finished`
    input  wire                     stop,      // level: give out no further pass (error, soft reset)
    output logic                    finished,  // level: all passes given out (or stopped)
    output logic [31:0]             passes,    // given out since go
    output logic [31:0]             tokens,    // to read in this start
    // command, by command lane
    input  wire  [7:0]              cmd_lanes,       // how many
    input  wire  [19:0]             cmd_window,      // sliding window in positions, 0: none
    input  wire  [LANES*16-1:0]     cmd_slot,
    input  wire  [LANES*16-1:0]     cmd_tail_slot,
    input  wire  [LANES*20-1:0]     cmd_prefix_len,
    input  wire  [LANES*20-1:0]     cmd_start,
    input  wire  [LANES*20-1:0]     cmd_num_read,
    input  wire  [LANES*16-1:0]     cmd_num_draft,
    input  wire  [LANES*20-1:0]     cmd_token_word,  // index of the first token in token memory
    input  wire  [LANES*32-1:0]     cmd_ancestors,   // tree: visible command lanes, 0: chain
    // pass descriptor
    output logic                    pass_valid,
    input  wire                     pass_ready,
    output logic [LANES-1:0]        pass_rows,       // lanes in use: the low ones
    output logic [LANES-1:0]        pass_sampled,    // rows whose successor is drawn
    output logic [LANES-1:0]        pass_leader,     // first row of its command lane in this pass
    output logic [LANES*LANES-1:0]  pass_group,      // [row]: rows of the same command lane
    output logic [LANES*LANES-1:0]  pass_visible,    // [row]: rows whose fresh K/V it sees (own bit set)
    output logic [LANES*20-1:0]     pass_position,   // [row]
    output logic [LANES*20-1:0]     pass_lo,         // [row]: first position inside of the window
    output logic [LANES*20-1:0]     pass_mem_len,    // [row]: positions below lie in memory
    output logic [LANES*20-1:0]     pass_prefix_len, // [row]: positions below lie in pass_slot
    output logic [LANES*16-1:0]     pass_slot,       // [row]
    output logic [LANES*16-1:0]     pass_tail_slot,  // [row]: writes, and reads from prefix_len on
    output logic [LANES-1:0]        pass_feedback,   // [row]: its token is the one drawn last
    output logic [LANES*20-1:0]     pass_token_word, // [row]: else index in token memory
    output logic [LANES*8-1:0]      pass_lane,       // [row]: command lane
    output logic [LANES*16-1:0]     pass_step        // [row]: tokens drawn before this row's draw
);

    localparam int LANE_BITS = LANES > 1 ? $clog2(LANES) : 1;
    localparam [2:0] S_IDLE = 3'd0, S_COUNT = 3'd1, S_FILL = 3'd2, S_SAMPLED = 3'd3,
        S_DRAFT = 3'd4, S_SEAL = 3'd5;

    logic [2:0] state, resume;
    logic [7:0] lane;          // command lane in turn
    logic [19:0] offset;       // tokens of it that are done
    logic [15:0] step;         // of the drafting passes
    logic [15:0] most_drafts;
    logic [7:0] room;          // rows still to come into the pass being built
    logic first_pass;
    logic [15:0] seal_step;    // drafts before this pass

    // the command lane in turn; lanes beyond the last one are never used
    wire [LANE_BITS-1:0] at = lane[LANE_BITS-1:0];
    wire [19:0] lane_start = cmd_start[at*20 +: 20];
    wire [19:0] lane_read = cmd_num_read[at*20 +: 20];
    wire [15:0] lane_drafts = cmd_num_draft[at*16 +: 16];
    wire [19:0] lane_prefix = cmd_prefix_len[at*20 +: 20];
    wire [31:0] lane_ancestors = cmd_ancestors[at*32 +: 32];
    wire lane_exists = lane < cmd_lanes;
    wire [19:0] lane_fills = lane_read - 20'(lane_drafts != 16'd0);

    // the row that would be next
    logic row_valid;
    logic [19:0] row_position, row_offset;
    assign row_valid = state == S_FILL ? lane_exists && offset < lane_fills
        : state == S_SAMPLED ? lane_exists && lane_drafts != 16'd0
        : state == S_DRAFT && lane_exists && lane_drafts > step;
    assign row_offset = state == S_FILL ? offset : lane_read - 20'd1;
    assign row_position = lane_start + row_offset + (state == S_DRAFT ? 20'(step) : 20'd0);

    // the pass being built: rows in the low lanes
    logic [LANES-1:0] rows, sampled, feedback;
    logic [LANES*8-1:0] row_lane;
    logic [LANES*20-1:0] position, token_word, prefix_len, mem_len;
    logic [LANES*16-1:0] slot, tail_slot;
    logic [LANES*32-1:0] ancestors;
    logic [7:0] filled;
    wire [LANE_BITS-1:0] into = filled[LANE_BITS-1:0];

    // first position of this command lane in the pass: that of its first row
    logic [19:0] first_position;
    always_comb begin
        first_position = row_position;
        for (int m = LANES - 1; m >= 0; m--)
            if (rows[m] && row_lane[m*8 +: 8] == lane) first_position = position[m*20 +: 20];
        // a tree's rows: their ancestors are in this pass or below prefix_len
        if (lane_ancestors != 32'd0 && first_pass && lane_prefix < first_position)
            first_position = lane_prefix;
    end

    // relations between rows of the finished pass
    logic [LANES-1:0] leader;
    logic [LANES*LANES-1:0] group, visible;
    wire [LANES*20-1:0] lo;
    for (genvar r = 0; r < LANES; r++) begin : g_row
        wire [31:0] mask = ancestors[r*32 +: 32];
        wire tree = first_pass && mask != 32'd0;
        wire [LANES-1:0] same, seen, in_window;
        wire [19:0] own = position[r*20 +: 20];
        assign lo[r*20 +: 20] = cmd_window != 20'd0 && own >= cmd_window
            ? own + 20'd1 - cmd_window : 20'd0;
        for (genvar m = 0; m < LANES; m++) begin : g_other
            assign same[m] = rows[r] && rows[m] && row_lane[m*8 +: 8] == row_lane[r*8 +: 8];
            assign in_window[m] = position[m*20 +: 20] >= lo[r*20 +: 20];
            assign seen[m] = rows[r] && rows[m]
`ifdef BUG_PASS_SCHEDULER_1
                && (m == r || same[m]);
`else
                && (m == r || (in_window[m] && (tree ? mask[row_lane[m*8 +: 5]] : same[m] && m < r)));
`endif
        end
        assign group[r*LANES +: LANES] = same;
        assign visible[r*LANES +: LANES] = seen;
        assign leader[r] = rows[r] && (same & ((LANES'(1) << r) - LANES'(1))) == '0;
    end

    wire [19:0] lane_tokens = cmd_token_word[at*20 +: 20] + row_offset;
    wire is_last_lane = lane + 8'd1 >= cmd_lanes;
    wire out_free = !pass_valid || pass_ready;
    assign finished = state == S_IDLE && !pass_valid;

    wire more_drafts = most_drafts > step + 16'd1;

    always_ff @(posedge clk) begin
        if (pass_ready) pass_valid <= 1'b0;
        case (state)
            S_IDLE: if (go) begin
                state <= S_COUNT;
                lane <= 8'd0;
                tokens <= 32'd0;
                most_drafts <= 16'd0;
                passes <= 32'd0;
                first_pass <= 1'b1;
                filled <= 8'd0;
                rows <= '0;
            end
            S_COUNT: if (lane_exists) begin
                lane <= lane + 8'd1;
                tokens <= tokens + 32'(lane_read);
                if (lane_drafts > most_drafts) most_drafts <= lane_drafts;
            end else begin
                // only the first pass may be short
`ifdef BUG_PASS_SCHEDULER_2
                room <= 8'(LANES);
`else
                room <= (tokens & 32'(LANES - 1)) == 32'd0 ? 8'(LANES)
                    : 8'(tokens & 32'(LANES - 1));
`endif
                lane <= 8'd0;
                offset <= 20'd0;
                step <= 16'd0;
                state <= cmd_lanes == 8'd0 ? S_IDLE : S_FILL;
            end
            S_FILL: begin
                if (!row_valid) begin
                    offset <= 20'd0;
                    lane <= is_last_lane ? 8'd0 : lane + 8'd1;
                    if (is_last_lane) state <= S_SAMPLED;
                end else offset <= offset + 20'd1;
            end
            S_SAMPLED, S_DRAFT: begin
                lane <= lane + 8'd1;
                if (is_last_lane) begin
                    lane <= 8'd0;
                    step <= step + 16'd1;
                    state <= more_drafts ? S_DRAFT : S_IDLE;
                end
            end
            S_SEAL: if (out_free) begin
                pass_valid <= !stop;
                passes <= passes + 32'(!stop);
                pass_rows <= rows;
                pass_sampled <= sampled;
                pass_feedback <= feedback;
                pass_leader <= leader;
                pass_group <= group;
                pass_visible <= visible;
                pass_position <= position;
                pass_mem_len <= mem_len;
                pass_prefix_len <= prefix_len;
                pass_slot <= slot;
                pass_tail_slot <= tail_slot;
                pass_token_word <= token_word;
                pass_lane <= row_lane;
                pass_lo <= lo;
                for (int r = 0; r < LANES; r++) pass_step[r*16 +: 16] <= seal_step;
                rows <= '0;
                filled <= 8'd0;
                room <= 8'(LANES);
                first_pass <= 1'b0;
                state <= stop ? S_IDLE : resume;
            end
            default: state <= S_IDLE;
        endcase
        if (row_valid) begin
            // By constant places: a part select at a variable place becomes a shifter.
            for (int l = 0; l < LANES; l++) if (into == LANE_BITS'(l)) begin
                rows[l] <= 1'b1;
                sampled[l] <= state != S_FILL;
                feedback[l] <= state == S_DRAFT;
                row_lane[l*8 +: 8] <= lane;
                position[l*20 +: 20] <= row_position;
                mem_len[l*20 +: 20] <= first_position;
                prefix_len[l*20 +: 20] <= lane_prefix;
                slot[l*16 +: 16] <= cmd_slot[at*16 +: 16];
                tail_slot[l*16 +: 16] <= cmd_tail_slot[at*16 +: 16];
                token_word[l*20 +: 20] <= lane_tokens;
                ancestors[l*32 +: 32] <= lane_ancestors;
            end
            seal_step <= step;
            filled <= filled + 8'd1;
            room <= room - 8'd1;
        end
        // a full pass, or a drafting pass's last lane, is sealed; building goes on at `resume`
        if (state == S_FILL || state == S_SAMPLED || state == S_DRAFT) begin
            if ((row_valid && room == 8'd1)
                || (state != S_FILL && is_last_lane && (row_valid || filled != 8'd0))) begin
                state <= S_SEAL;
                resume <= state == S_FILL ? S_FILL : !is_last_lane ? state
                    : more_drafts ? S_DRAFT : S_IDLE;
            end
        end
        if (rst) begin
            state <= S_IDLE;
            pass_valid <= 1'b0;
            passes <= 32'd0;
        end
    end
endmodule
`default_nettype wire
