// EMBED of all lanes: the rows of the input tokens, gathered from the ports that hold them.
//
// What:       For each active lane two gathers from the port of its token's row: the mantissa beat of
//             the row's block, and the beats of its tile. Gathers go out lane after lane without
//             waiting for answers; answers of one port come in the order of the requests. The rest of
//             the vector's last word is written with zeros.
// Latency: 2 gathers of a lane, plus about 10 cycles.
// Throughput: a beat of each port a cycle; 32 columns a lane every max(1, 8 / PORTS) cycles.
// Golden: fpga/golden/embed.py::embed
`default_nettype none

module embed_unit #(
    parameter int PORTS = 4,     // memory ports
    parameter int LANES = 4,     // lanes
    parameter int ACT_COLS = 512, // widest vector (a tile's pairs are kept until written)
    parameter int WORD_BITS = 16 // bits of a word index in vector memory
) (
    input  wire                        clk,
    input  wire                        rst,
    // sequencer
    input  wire  [511:0]               op_word,     // linked EMBED, stable until done
    input  wire  [LANES-1:0]           active,
    input  wire                        start,       // pulse
    output logic                       done,        // pulse, when all active lanes are written
    output logic                       busy,
    input  wire  [LANES*32-1:0]        token,       // ids < num_rows, stable until done
    input  wire  [PORTS*64-1:0]        weight_addr, // byte address of each port's weight share
    // gathers (memory_port)
    output logic [PORTS-1:0]           g_valid,
    input  wire  [PORTS-1:0]           g_ready,
    output logic [PORTS*64-1:0]        g_addr,
    output logic [PORTS*16-1:0]        g_beats,
    input  wire  [PORTS-1:0]           gr_valid,    // answers to these requests only
    input  wire  [PORTS*512-1:0]       gr_data,
    input  wire  [PORTS-1:0]           gr_last,
    // wide write port of each lane's lane_memory; zeros when not w_en
    output logic [LANES-1:0]           w_en,
    output logic [LANES*PORTS-1:0]     w_mask,
    output logic [LANES*WORD_BITS-1:0] w_word,
    output logic [LANES*PORTS*128-1:0] w_data
);
    localparam int LANE_BITS = LANES > 1 ? $clog2(LANES) : 1;
    localparam int PORT_LOG = $clog2(PORTS);
    localparam int PORT_BITS = PORTS > 1 ? PORT_LOG : 1;
    localparam int MAX_PAIRS = (ACT_COLS + 63) / 64 * 2;
    localparam [2:0] S_IDLE = 3'd0, S_PLACE = 3'd1, S_MULTIPLY = 3'd2, S_ADD = 3'd3,
        S_MANTISSA = 3'd4, S_ROW = 3'd5, S_NEXT = 3'd6, S_WAIT = 3'd7;

    wire [31:0] local_beat = op_word[32 +: 32];
    wire [15:0] block_beats = op_word[192 +: 16];
    wire [15:0] pairs = op_word[224 +: 16];

    // requests: lane after lane, first the mantissa beat, then the tile
    logic [2:0] state;
    logic [LANE_BITS-1:0] lane;
    wire [31:0] id = token[lane*32 +: 32];
    wire [31:0] tile = id >> (2 + PORT_LOG);  // local tile of its port
    logic [PORT_BITS-1:0] port;
    logic [31:0] block_start, tile_start;
    logic [63:0] base, address;
    logic [15:0] beats;
    wire accepted = (g_valid & g_ready) != '0;
    assign g_addr = {PORTS{address}};
    assign g_beats = {PORTS{beats}};
    for (genvar p = 0; p < PORTS; p++) begin : g_request
        assign g_valid[p] = (state == S_MANTISSA || state == S_ROW) && port == PORT_BITS'(p);
    end

    logic [LANES-1:0] working, lane_done;
    wire [LANES-1:0] starting = active & {LANES{start && state == S_IDLE}};
    assign busy = state != S_IDLE;
    always_ff @(posedge clk) begin
        done <= 1'b0;
        case (state)
            S_IDLE: if (start) begin
                lane <= '0;
                state <= S_PLACE;
            end
            S_PLACE: begin
                port <= PORTS > 1 ? id[2 +: PORT_BITS] : '0;
                block_start <= 32'(tile[18:3]) * 32'(block_beats);
                tile_start <= 32'(tile[2:0]) * {15'd0, pairs, 1'b0};
                state <= working[lane] ? S_MULTIPLY : S_NEXT;
            end
            S_MULTIPLY: begin
                base <= weight_addr[port*64 +: 64];
                block_start <= block_start + local_beat;
                tile_start <= tile_start + 32'(block_beats) - {12'd0, pairs, 4'd0};
                state <= S_ADD;
            end
            S_ADD: begin
                address <= base + {26'd0, block_start, 6'd0};
                beats <= 16'd1;
                state <= S_MANTISSA;
            end
            S_MANTISSA: if (accepted) begin
                address <= address + {26'd0, tile_start, 6'd0};
                beats <= {pairs[14:0], 1'b0};
                state <= S_ROW;
            end
            S_ROW: if (accepted) state <= S_NEXT;
            S_NEXT: begin
                lane <= lane + LANE_BITS'(1);
                state <= 32'(lane) == LANES - 1 ? S_WAIT : S_PLACE;
            end
            default: if (working == '0) begin
                done <= 1'b1;
                state <= S_IDLE;
            end
        endcase
        working <= starting | (working & ~lane_done);
        if (rst) begin
            state <= S_IDLE;
            done <= 1'b0;
            working <= '0;
        end
    end

    // answers on each port belong to its lowest lane that still waits
    logic [LANES-1:0] waiting;
    wire [PORTS*LANES-1:0] finishing;        // [port]: lane that gets its last beat now
    logic [PORTS*LANES-1:0] to_lane;         // [port]: lane the registered beat is for
    logic [PORTS-1:0] is_mantissa, is_columns;
    logic [PORTS*16-1:0] mantissa;
    logic [PORTS*256-1:0] columns;
    for (genvar p = 0; p < PORTS; p++) begin : g_answer
        logic [LANES-1:0] first;
        logic [4:0] place;                   // row in its block: {tile, row of the tile}
        always_comb begin
            first = '0;
            place = '0;
            for (int l = LANES - 1; l >= 0; l--) begin
                if (waiting[l] && (PORTS == 1 || 32'(token[l*32+2 +: PORT_BITS]) == p)) begin
`ifdef BUG_EMBED_UNIT_1
                    first = first | (LANES'(1) << l);
`else
                    first = LANES'(1) << l;
`endif
                    place = {token[l*32+2+PORT_LOG +: 3], token[l*32 +: 2]};
                end
            end
        end
        logic in_tile, second;               // the tile's beats have begun; second beat of a pair
        wire [511:0] beat = gr_data[p*512 +: 512];
        assign finishing[p*LANES +: LANES] =
            first & {LANES{gr_valid[p] && gr_last[p] && in_tile}};
        always_ff @(posedge clk) begin
            is_mantissa[p] <= gr_valid[p] && !in_tile;
            is_columns[p] <= gr_valid[p] && in_tile && second == place[1];
            if (gr_valid[p]) begin
                to_lane[p*LANES +: LANES] <= first;
                if (!in_tile) mantissa[p*16 +: 16] <= beat[place*16 +: 16];
                if (in_tile && second == place[1])
                    columns[p*256 +: 256] <= place[0] ? beat[511:256] : beat[255:0];
                in_tile <= in_tile != gr_last[p];
                second <= in_tile && !second;
            end
            if (rst || (start && state == S_IDLE)) begin
                {in_tile, second} <= '0;
                {is_mantissa[p], is_columns[p]} <= '0;
            end
        end
    end
    always_ff @(posedge clk) begin
        for (int l = 0; l < LANES; l++) begin
            if (starting[l]) waiting[l] <= 1'b1;
            for (int p = 0; p < PORTS; p++) if (finishing[p*LANES+l]) waiting[l] <= 1'b0;
        end
        if (rst) waiting <= '0;
    end

    for (genvar l = 0; l < LANES; l++) begin : g_lane
        // a lane waits for one port only, so that ORing selects
        logic got_mantissa, got_columns;
        logic [15:0] lane_mantissa;
        logic [255:0] lane_columns;
        always_comb begin
            {got_mantissa, got_columns} = '0;
            lane_mantissa = '0;
            lane_columns = '0;
            for (int p = 0; p < PORTS; p++) if (to_lane[p*LANES+l]) begin
                got_mantissa = got_mantissa | is_mantissa[p];
                got_columns = got_columns | is_columns[p];
                if (is_mantissa[p]) lane_mantissa = lane_mantissa | mantissa[p*16 +: 16];
                if (is_columns[p]) lane_columns = lane_columns | columns[p*256 +: 256];
            end
        end
        embed_lane #(.PORTS(PORTS), .MAX_PAIRS(MAX_PAIRS), .WORD_BITS(WORD_BITS)) u_lane (
            .clk           (clk),
            .rst           (rst),
            .start         (starting[l]),
            .op_shift      (op_word[128 +: 32]),
            .op_out_word   (op_word[160 +: WORD_BITS]),
            .op_pairs      (pairs),
            .done          (lane_done[l]),
            .mantissa_valid(got_mantissa),
            .mantissa_in   (lane_mantissa),
            .columns_valid (got_columns),
            .columns       (lane_columns),
            .w_en          (w_en[l]),
            .w_mask        (w_mask[l*PORTS +: PORTS]),
            .w_word        (w_word[l*WORD_BITS +: WORD_BITS]),
            .w_data        (w_data[l*PORTS*128 +: PORTS*128])
        );
    end

    wire unused = &{1'b0, op_word, tile, pairs[15]};
endmodule
`default_nettype wire
