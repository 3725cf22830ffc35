`default_nettype none
// MATMUL and HEAD on one port: takes the matrix channel apart, feeds the array slices, drains.
//
// What: walks a matrix block by block (mantissas, target ids, then tiles of weight beats with a
//   scale beat before every eight int4 pairs). With op_dual two beats go a cycle, the first to
//   slice l, the second to slice l + ARRAYS/2, both for lane l; else one beat a cycle goes to
//   slice l for lane l, and a scale beat goes with the beat after it. Slices narrower than a beat
//   take 64 / ARRAY_BYTES cycles for it. Finished tiles queue for the lanes' drains; a tile begins
//   only when every drain has room for it.
// Latency: 22 cycles from the last step of a tile's last beat to its write, one more to done.
// Throughput: a beat every 64 / ARRAY_BYTES cycles, two with op_dual; a scale beat costs one
//   cycle with op_dual, none without.
// Golden: fpga/golden/matmul.py::accumulate
module matrix_port #(
    parameter int PORTS = 4,        // memory ports
    parameter int LANES = 4,        // rows of a pass
    parameter int ARRAYS = 4,       // array slices: max(2, LANES)
    parameter int ARRAY_BYTES = 64, // of a beat that a slice multiplies a cycle: 16, 32 or 64
    parameter int ACT_COLS = 2048,  // widest activation
    parameter int WORD_BITS = 16    // bits of a word index in vector memory
) (
    input  wire                       clk,
    input  wire                       rst,
    input  wire  [7:0]                port_index,   // constant
    // sequencer
    input  wire  [511:0]              op_word,      // linked MATMUL or HEAD, stable until done
    input  wire  [LANES-1:0]          op_active,
    input  wire                       op_dual,
    input  wire                       start,        // pulse
    output logic                      done,         // pulse: everything written or handed on
    output logic                      busy,
    // matrix channel
    input  wire  [1:0]                matrix_count,
    input  wire  [1023:0]             matrix_data,
    output logic [1:0]                matrix_take,
    // activation buses of all lanes
    input  wire  [LANES-1:0]          act_we,
    input  wire  [LANES*WORD_BITS-1:0] act_word,
    input  wire  [LANES*PORTS*32-1:0] act_data,
    input  wire  [LANES*16-1:0]       act_mant,
    input  wire  [LANES*16-1:0]       act_exp,
    // this port's bank in the vector memories
    output wire  [LANES-1:0]          read_en,
    output wire  [LANES*WORD_BITS-1:0] read_word,
    input  wire  [LANES*128-1:0]      read_data,    // 2 cycles after read_en
    output wire  [LANES-1:0]          write_en,
    output wire  [LANES*WORD_BITS-1:0] write_word,
    output wire  [LANES*128-1:0]      write_data,
    // logits of each lane
    output wire  [LANES-1:0]          logit_valid,
    input  wire  [LANES-1:0]          logit_ready,
    output wire  [LANES*32-1:0]       logit,
    output wire  [LANES*32-1:0]       logit_id
);
    `include "isa.svh"
    localparam int QUEUE = 8;           // tiles that may wait for a drain
    localparam int HALF = ARRAYS / 2;
    localparam int MAC_STAGES = 7;      // a slice's latency
    localparam [1:0] LAST_STEP = 2'(64 / ARRAY_BYTES - 1);  // of a beat
    localparam [2:0] S_IDLE = 3'd0, S_MANTS = 3'd1, S_IDS = 3'd2, S_WEIGHTS = 3'd3, S_DRAIN = 3'd4;

    // ---- operands
    wire head = op_word[7:0] == `OP_HEAD;
    wire [23:0] tiles = op_word[3*32 +: 24];
    wire [15:0] pairs = op_word[4*32 +: 16];
    wire int8 = op_word[5*32 +: 32] == 32'd8;
    wire [31:0] shift = op_word[6*32 +: 32];
    wire has_ids = head && op_word[9*32];
    wire accumulate = !head && op_word[8*32];

    // ---- walk: what is next on the channel
    logic [2:0] state;
    logic [23:0] tiles_left;
    logic [3:0] block_left;      // tiles of this block not yet finished
    logic [2:0] block_tile;
    logic [15:0] pair;           // of the tile
    logic [2:0] chunk_pair;      // of the scale beat's eight
    logic upper;                 // single rate: the pair's second beat is next
    logic scaled;                // the chunk's scale beat is here
    logic second_ids;
    wire [3:0] block_size = tiles_left < 24'd8 ? tiles_left[3:0] : 4'd8;
    wire room;                   // every drain can take one more tile
    wire at_start = pair == 16'd0 && !upper;
    logic stepping;              // the slices are at a beat,
    logic [1:0] step;            // in this part of it
    wire last_step = stepping && step == LAST_STEP;
    wire may = state == S_WEIGHTS && (!at_start || room) && (!stepping || last_step);
    wire needs_scale = !int8 && !scaled;
    wire two = matrix_count == 2'd2;
    wire any = matrix_count != 2'd0;
    // dual: scale beat alone, then pairs. single: scale beat with the pair's first beat
    wire take_scale = may && needs_scale && (op_dual ? any : two);
    wire take_pair = may && op_dual && !needs_scale && two;
    wire take_beat = may && !op_dual && (needs_scale ? two : any);
    wire feed = take_pair || take_beat;
    wire pair_over = take_pair || (take_beat && upper);
    wire tile_over = pair_over && pair + 16'd1 == pairs;
    wire block_over = tile_over && block_left == 4'd1;
    wire take_head = (state == S_MANTS || state == S_IDS) && any;
    always_comb begin
        matrix_take = 2'd0;
        if (take_head || take_scale || feed) matrix_take = 2'd1;
        if (take_pair || (take_scale && take_beat)) matrix_take = 2'd2;
    end

    logic [511:0] mants;         // of the block: row r of tile u at uint16 4u + r
    logic [1023:0] ids;
    logic [511:0] scales;
    always_ff @(posedge clk) begin
        if (state == S_MANTS && any) mants <= matrix_data[511:0];
        if (state == S_IDS && any) ids <= {matrix_data[511:0], ids[1023:512]};
        if (take_scale) scales <= matrix_data[511:0];
        if (take_scale) scaled <= 1'b1;
        if (pair_over) begin
            chunk_pair <= chunk_pair + 3'd1;
            if (chunk_pair == 3'd7) scaled <= 1'b0;
            pair <= tile_over ? 16'd0 : pair + 16'd1;
        end
        if (take_beat) upper <= !upper;
        if (tile_over) begin
            block_left <= block_left - 4'd1;
            block_tile <= block_tile + 3'd1;
            tiles_left <= tiles_left - 24'd1;
        end
        case (state)
            S_IDLE: if (start) begin
                state <= tiles == 24'd0 ? S_DRAIN : S_MANTS;
                tiles_left <= tiles;
            end
            S_MANTS: if (any) begin
                state <= has_ids ? S_IDS : S_WEIGHTS;
                block_left <= block_size;
                block_tile <= 3'd0;
                pair <= 16'd0;
                chunk_pair <= 3'd0;
                upper <= 1'b0;
`ifndef BUG_MATRIX_PORT_1
                scaled <= 1'b0;
`endif
                second_ids <= 1'b0;
            end
            S_IDS: if (any) begin
                second_ids <= 1'b1;
                if (second_ids) state <= S_WEIGHTS;
            end
            S_WEIGHTS: if (block_over) state <= tiles_left == 24'd1 ? S_DRAIN : S_MANTS;
            default: if (finished) state <= S_IDLE;
        endcase
        done <= state == S_DRAIN && finished;
        if (rst) begin
            state <= S_IDLE;
            done <= 1'b0;
        end
    end
    assign busy = state != S_IDLE;

    // ---- 1: beats, activations; what belongs to the finished tile waits until its sums come
    logic first1, last1, int8_1, upper1, odd1;
    logic [511:0] low1, high1;
    logic [2:0] chunk_pair1;
    always_ff @(posedge clk) begin
        if (feed) {stepping, step} <= {1'b1, 2'd0};
        else if (last_step) stepping <= 1'b0;
        else if (stepping) step <= step + 2'd1;
        if (rst) stepping <= 1'b0;
        if (feed) begin
            low1 <= take_scale ? matrix_data[1023:512] : matrix_data[511:0];
            if (op_dual) high1 <= matrix_data[1023:512];
            first1 <= pair == 16'd0 && !upper;
            last1 <= tile_over;
            int8_1 <= int8;
            upper1 <= upper;
            odd1 <= pair[0];
            chunk_pair1 <= chunk_pair;
        end
    end
    wire [63:0] pair_scales = scales[chunk_pair1*64 +: 64];

    // ---- slices
    wire [ARRAYS-1:0] sums_valid;
    wire [ARRAYS*128-1:0] sums;
    for (genvar s = 0; s < ARRAYS; s++) begin : g_slice
        localparam int OWN = s < LANES ? s : s - HALF;     // lane at single rate
        localparam int SHARED = s < HALF ? s : s - HALF;   // lane at double rate
        wire works = op_dual ? op_active[SHARED] : op_active[OWN] && s < LANES;
        wire second = op_dual ? s >= HALF : upper1;        // second beat of the pair
        wire [511:0] act;
        act_memory #(.PORTS(PORTS), .ACT_COLS(ACT_COLS), .WORD_BITS(WORD_BITS)) u_act (
            .clk,
            .write_en(op_dual ? act_we[SHARED] : act_we[OWN] && s < LANES),
            .write_word(op_dual ? act_word[SHARED*WORD_BITS +: WORD_BITS]
                                : act_word[OWN*WORD_BITS +: WORD_BITS]),
            .write_data(op_dual ? act_data[SHARED*PORTS*32 +: PORTS*32]
                                : act_data[OWN*PORTS*32 +: PORTS*32]),
            .read_en(feed && works),
            .read_group(int8 ? WORD_BITS'(pair >> 1) : WORD_BITS'(pair)),
            .read_data(act)
        );
        wire half = int8_1 ? odd1 : second;
        mac_slice #(.BYTES(ARRAY_BYTES)) u_mac (
            .clk, .rst,
            .in_valid(stepping && works), .in_step(step),
            .in_first(first1), .in_last(last1), .in_int8(int8_1), .in_upper(second),
            .in_weights(op_dual && s >= HALF ? high1 : low1),
            .in_acts(half ? act[511:256] : act[255:0]),
            .in_scales(second ? pair_scales[63:32] : pair_scales[31:0]),
            .out_valid(sums_valid[s]), .out_sums(sums[s*128 +: 128])
        );
    end

    // ---- the tile's mantissas and ids, in step with its sums
    logic [MAC_STAGES-1:0] leaving;
    logic [23:0] next_index;     // of the tile whose sums come next
    wire push = leaving[MAC_STAGES-1];
    wire [63:0] queued_mants;
    wire [127:0] queued_ids;
    wire described, unused_room;
    wire [3:0] unused_level;
    stream_fifo #(.WIDTH(192), .DEPTH(8)) u_described (
        .clk, .rst, .clear(1'b0), .in_valid(tile_over), .in_ready(unused_room),
        .in_data({ids[block_tile*128 +: 128], mants[block_tile*64 +: 64]}),
        .out_valid(described), .out_ready(push), .out_data({queued_ids, queued_mants}),
        .level(unused_level)
    );
    logic [3:0] begun;           // tiles begun and not yet pushed
    always_ff @(posedge clk) begin
        leaving <= {leaving[MAC_STAGES-2:0], last_step && last1};
        begun <= begun + 4'(feed && at_start) - 4'(push);
        if (start) next_index <= 24'd0;
        else if (push) next_index <= next_index + 24'd1;
        if (rst) begin
            leaving <= '0;
            begun <= 4'd0;
        end
    end

    // ---- drains
    wire [LANES*4-1:0] levels;
    wire [LANES-1:0] draining, full;
    assign room = full == '0;
    wire finished = begun == 4'd0 && draining == '0;
    for (genvar l = 0; l < LANES; l++) begin : g_drain
        localparam int PARTNER = l + HALF < ARRAYS ? l + HALF : l;
        wire [127:0] tile_sums;
        for (genvar r = 0; r < 4; r++) begin : g_sum
            assign tile_sums[r*32 +: 32] = sums[(l*4+r)*32 +: 32]
                + (op_dual ? sums[(PARTNER*4+r)*32 +: 32] : 32'd0);
        end
        assign full[l] = op_active[l] && {1'b0, levels[l*4 +: 4]} + {1'b0, begun} >= 5'(QUEUE);
        drain #(.PORTS(PORTS), .WORD_BITS(WORD_BITS), .QUEUE(QUEUE)) u_drain (
            .clk, .rst, .port_index, .head, .accumulate, .shift,
            .out_word(op_word[7*32 +: WORD_BITS]), .valid_rows(op_word[7*32 +: 32]), .has_ids,
            .act_mant(act_mant[l*16 +: 16]), .act_exp(act_exp[l*16 +: 16]),
            .tile_valid(push && op_active[l]), .tile_sums, .tile_mants(queued_mants),
            .tile_ids(queued_ids), .tile_index(next_index), .level(levels[l*4 +: 4]),
            .busy(draining[l]),
            .read_en(read_en[l]), .read_word(read_word[l*WORD_BITS +: WORD_BITS]),
            .read_data(read_data[l*128 +: 128]),
            .write_en(write_en[l]), .write_word(write_word[l*WORD_BITS +: WORD_BITS]),
            .write_data(write_data[l*128 +: 128]),
            .logit_valid(logit_valid[l]), .logit_ready(logit_ready[l]),
            .logit(logit[l*32 +: 32]), .logit_id(logit_id[l*32 +: 32])
        );
    end
    wire unused = &{1'b0, described, unused_room, unused_level, sums_valid, op_word};

`ifdef HETERO_ASSERT
    always_ff @(posedge clk) if (!rst) begin
        assert (!(push && !described)) else $fatal(1, "matrix_port: sums without a tile");
        for (int l = 0; l < LANES; l++)
            assert (!op_active[l] || push == sums_valid[l])
                else $fatal(1, "matrix_port: sums come out of step");
    end
`endif
`ifndef SYNTHESIS
    if (ARRAYS < 2 || ARRAYS < LANES || ARRAYS % 2 != 0) begin : g_check
        initial $fatal(1, "matrix_port: ARRAYS = %0d must be even and at least LANES and 2", ARRAYS);
    end
    if (ARRAY_BYTES != 16 && ARRAY_BYTES != 32 && ARRAY_BYTES != 64) begin : g_check_bytes
        initial $fatal(1, "matrix_port: ARRAY_BYTES = %0d must be 16, 32 or 64", ARRAY_BYTES);
    end
`endif
endmodule
`default_nettype wire
