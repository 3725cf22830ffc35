// Cuts the beats of a port's KV stream into records, each with its scales, for all lanes at once.
//
// What: A phase of scales fills the scale memory; the phases of keys and of values that follow give
//   one key or value record (granule) a transfer with the scales of its position and head. Ranges,
//   skipped and surplus granules and empty ranges are dealt with here. The lanes of a group take a
//   granule in the same cycle.
// Latency: 3 cycles from beat to granule.
// Throughput: one granule a cycle, at most one beat a cycle; in_ready depends on in_kind and in_lanes,
//   and combinationally on out_ready, never on in_valid.
// Golden: fpga/golden/kv_cache.py::KvCache (the layout it reads back)
`default_nettype none

module kv_unpack #(
    parameter int PORTS = 1,         // positions go round the ports
    parameter int LANES = 1,         // rows of a pass
    parameter int MAX_HEAD_DIM = 64, // 32, 64, 128
    parameter int KV_BITS = 3,       // bits of a kv head
    parameter int SCALE_BEATS = 64   // beats of scales a phase can have on this port
) (
    input  wire                       clk,
    input  wire                       rst,
    input  wire  [7:0]                cfg_kv_heads,
    input  wire                       cfg_half,      // head_dim is 32: two granules a beat
    input  wire                       cfg_double,    // head_dim is 128: two beats a granule
    input  wire  [LANES-1:0]          lane_keys,     // lane takes scales and keys now
    input  wire  [LANES-1:0]          lane_values,   // lane takes values now
    // aux channel, kinds 3 (scales), 4 (keys), 5 (values)
    input  wire                       in_valid,
    output wire                       in_ready,
    input  wire  [511:0]              in_data,
    input  wire  [2:0]                in_kind,
    input  wire  [LANES-1:0]          in_lanes,
    input  wire                       in_empty,
    input  wire                       in_first,
    input  wire  [2:0]                in_skip,
    input  wire  [19:0]               in_count,
    input  wire  [19:0]               in_pos,
    input  wire                       in_end,
    // granules; a lane's valid is up only when all lanes of the group are ready
    output wire  [LANES-1:0]          out_valid,
    input  wire  [LANES-1:0]          out_ready,
    output logic                      out_empty,     // no granule, only the news that the phase ends
    output logic                      out_end,       // the phase ends with this transfer
    output logic [KV_BITS-1:0]        out_kv_head,
    output logic [19:0]               out_pos,       // global position
    output logic [MAX_HEAD_DIM*8-1:0] out_data,      // zero beyond the record
    output logic [63:0]               out_scale      // key word, value word: mantissa | exponent << 16
);
    localparam int BEAT_BITS = $clog2(SCALE_BEATS);
    localparam int SLOT_BITS = BEAT_BITS + 3;
    localparam [2:0] SCALE = 3'd3;

    // ------------------------------------------------------------------ scale phase
    (* ram_style = "ultra" *) logic [511:0] scales [0:SCALE_BEATS-1]; // block RAM is scarcer
    logic [BEAT_BITS-1:0] scale_beat;
    logic [SLOT_BITS-1:0] base0, base1; // slot of the first granule of each range
    logic second_range;
    logic [2:0] last_kind;

    logic a_valid, b_valid, c_valid;
    logic [LANES-1:0] c_lanes;
    wire c_done = c_valid && (c_lanes & ~out_ready) == '0;
    wire is_scale = in_kind == SCALE;
    wire lanes_ready = (in_lanes & ~(in_kind[2] && in_kind[0] ? lane_values : lane_keys)) == '0;
    wire a_ready;
    // scales wait until the records before them are gone, which still use the scale memory
    assign in_ready = lanes_ready && (is_scale ? !(a_valid || b_valid || c_valid) : a_ready);
    wire take = in_valid && in_ready;

    wire new_phase = in_kind != last_kind;
    wire begins = in_first || in_empty;
    wire at_second = !new_phase && second_range;
    wire [BEAT_BITS-1:0] at_beat = new_phase ? '0 : scale_beat;
    always_ff @(posedge clk) begin
        if (take) begin
            last_kind <= in_kind;
            if (begins) second_range <= !at_second;
            else if (new_phase) second_range <= 1'b0;
        end
        if (take && is_scale) begin
            if (!in_empty) scales[at_beat] <= in_data;
            scale_beat <= at_beat + BEAT_BITS'(!in_empty);
            if (begins && !at_second) base0 <= {at_beat, in_skip};
            if (begins && at_second) base1 <= {at_beat, in_skip};
        end
        if (rst) last_kind <= 3'd0;
    end

    // ------------------------------------------------------------------ A: a beat, cut up
    logic [511:0] a_data, a_low;
    logic [LANES-1:0] a_lanes;
    logic a_empty, a_end;
    logic a_upper;              // 32-byte granules: in the upper half now
    logic a_low_held;           // 128-byte granules: the first beat is in a_low
    logic [19:0] a_left, a_pos; // granules of the range still to come; their position
    logic [KV_BITS-1:0] a_head;
    logic [SLOT_BITS-1:0] a_slot;

    wire a_last_head = 8'(a_head) + 8'd1 == cfg_kv_heads;
    wire b_ready = !b_valid || !c_valid || c_done;
    wire a_surplus = a_empty || a_left == 20'd0;      // no granule in (the rest of) this beat
    wire a_first_half = cfg_double && !a_low_held;   // only a half: keep it
    wire a_gives = !a_surplus && !a_first_half;       // a granule goes to B
    wire a_last = a_surplus || cfg_double || !cfg_half || a_upper || a_left == 20'd1;
    wire a_sends = a_gives || (a_end && a_last && a_surplus); // something goes to B
    wire a_go = a_valid && (b_ready || !a_sends);
    assign a_ready = !a_valid || (a_go && a_last);

    always_ff @(posedge clk) begin
        if (a_go) begin
            a_upper <= 1'b1;
            if (!a_surplus) begin
                if (a_first_half) a_low <= a_data;
                a_low_held <= a_first_half;
            end
            if (a_gives) begin
                a_left <= a_left - 20'd1;
                a_slot <= a_slot + SLOT_BITS'(1);
                a_head <= a_last_head ? '0 : a_head + KV_BITS'(1);
                if (a_last_head) a_pos <= a_pos + 20'(PORTS);
            end
            if (a_last) a_valid <= 1'b0;
        end
        if (take && !is_scale) begin
            a_valid <= 1'b1;
            a_data <= in_data;
            a_lanes <= in_lanes;
            a_empty <= in_empty;
            a_end <= in_end;
            a_upper <= begins && in_skip[0];
            if (begins) begin
                a_low_held <= 1'b0;
`ifdef BUG_KV_UNPACK_1
                a_left <= in_count + 20'd1;
`else
                a_left <= in_count;
`endif
                a_pos <= in_pos;
                a_head <= '0;
                a_slot <= at_second ? base1 : base0;
            end
        end
        if (rst) a_valid <= 1'b0;
    end

    // ------------------------------------------------------------------ B: with its beat of scales
    logic [MAX_HEAD_DIM*8-1:0] b_data;
    logic [511:0] b_scales;
    logic [2:0] b_sub;
    logic [LANES-1:0] b_lanes;
    logic b_empty, b_end;
    logic [KV_BITS-1:0] b_head;
    logic [19:0] b_pos;
    always_ff @(posedge clk) begin
        if (a_go && a_sends) begin
            if (cfg_double) b_data <= (MAX_HEAD_DIM*8)'({a_data, a_low});
            else if (!cfg_half) b_data <= (MAX_HEAD_DIM*8)'(a_data);
            else if (a_upper) b_data <= (MAX_HEAD_DIM*8)'(a_data[511:256]);
            else b_data <= (MAX_HEAD_DIM*8)'(a_data[255:0]);
            b_scales <= scales[a_slot[SLOT_BITS-1:3]];
            b_sub <= a_slot[2:0];
            b_lanes <= a_lanes;
            b_empty <= a_surplus;
            b_end <= a_end && a_last;
            b_head <= a_head;
            b_pos <= a_pos;
        end
        if (b_ready) b_valid <= a_go && a_sends;
        if (rst) b_valid <= 1'b0;
    end

    // ------------------------------------------------------------------ C: with its scales
    assign out_valid = c_done ? c_lanes : '0;
    always_ff @(posedge clk) begin
        if (b_valid && (!c_valid || c_done)) begin
            out_data <= b_data;
            out_scale <= b_scales[b_sub*64 +: 64];
            out_empty <= b_empty;
            out_end <= b_end;
            out_kv_head <= b_head;
            out_pos <= b_pos;
            c_lanes <= b_lanes;
        end
        if (!c_valid || c_done) c_valid <= b_valid;
        if (rst) c_valid <= 1'b0;
    end
endmodule

`default_nettype wire
