// Hands a port's beats to their consumers: matrix beats two wide, everything else one a cycle.
//
// What:       Matches tags with the beats at the head of the FIFO. While a matrix is current, the
//             matrix channel shows its beats and none beyond; while anything else is current, the
//             aux channel shows one transfer at a time, an event without data for an empty range.
// Latency:    0 for beats; the next tag is current in the cycle after the last beat of the one before.
// Throughput: two matrix beats or one aux transfer a cycle.
// Golden:     tests/support/stream_model.py
`default_nettype none

module stream_dispatch #(
    parameter int LANES = 1 // lanes: 1, 2, 4, 8
) (
    input  wire                  clk,
    input  wire                  rst,
    input  wire                  clear,
    input  wire                  tag_valid,
    output logic                 tag_ready,
    input  wire  [85+LANES-1:0]  tag,          // fields: see port_planner
    output logic                 idle,         // no tag current or waiting
    // beat_fifo
    input  wire  [1:0]           fifo_count,
    input  wire  [1023:0]        fifo_data,
    output logic [1:0]           fifo_take,
    // matrix channel
    output logic [1:0]           matrix_count, // 0, 1, 2 = two or more beats of this matrix
    output logic [1023:0]        matrix_data,  // the next beat in the low half
    input  wire  [1:0]           matrix_take,  // beats taken in this cycle, <= matrix_count
    // aux channel
    output logic                 aux_valid,
    input  wire                  aux_ready,    // all lanes in aux_lanes are ready
    output logic [511:0]         aux_data,
    output logic [2:0]           aux_kind,     // 1 ROPE_ROW, 2 GAMMA, 3 KV_SCALE, 4 KV_K, 5 KV_V
    output logic [LANES-1:0]     aux_lanes,    // who gets it
    output logic                 aux_empty,    // no data, an event only
    output logic                 aux_first,    // first transfer of a range
    output logic [7:0]           aux_skip,     // granules to skip in the first beat
    output logic [19:0]          aux_count,    // granules of this range on this port (beats for kinds 1, 2)
    output logic [19:0]          aux_pos,      // global position of the first granule not skipped
    output logic                 aux_end       // last transfer of the phase: of R1, or of a row or gamma
);
  localparam [2:0] KIND_MATRIX = 3'd0;
  localparam int TAG_BITS = 85 + LANES;

  logic [TAG_BITS-33:0] current;        // the tag without its beats
  logic                 current_valid;
  logic [31:0]          left;           // its beats not yet taken
  logic                 first;

  wire is_matrix = current[2:0] == KIND_MATRIX;
  wire is_empty = current[LANES+4];
  wire one_left = left == 32'd1;
  wire two_left = left == 32'd2;

  // ---- matrix: as many as there are, of this matrix only
`ifdef BUG_STREAM_DISPATCH_1
  wire [1:0] limit = 2'd2;
`else
  wire [1:0] limit = one_left ? 2'd1 : 2'd2;
`endif
  wire [1:0] offered = fifo_count < limit ? fifo_count : limit;

  assign matrix_count = current_valid && is_matrix ? offered : 2'd0;
  assign matrix_data  = fifo_data;

  // ---- everything else: one transfer at a time
  wire aux_done = is_empty || one_left;
  wire aux_fire = aux_valid && aux_ready;

  assign aux_valid = current_valid && !is_matrix && (is_empty || fifo_count != 2'd0);
  assign aux_data  = fifo_data[511:0];
  assign aux_kind  = current[2:0];
  assign aux_lanes = current[3+:LANES];
  assign aux_empty = is_empty;
  assign aux_first = first;
  assign aux_end   = current[LANES+3] && aux_done;
  assign aux_skip  = current[LANES+5+:8];
  assign aux_count = current[LANES+13+:20];
  assign aux_pos   = current[LANES+33+:20];

  assign fifo_take = is_matrix ? matrix_take : {1'b0, aux_fire && !is_empty};

  // ---- the next tag follows without a gap
  wire finished = (matrix_take == 2'd1 && one_left) || (matrix_take == 2'd2 && two_left)
                  || (aux_fire && aux_done);

  assign tag_ready = !current_valid || finished;
  assign idle      = !current_valid && !tag_valid;

  always_ff @(posedge clk) begin
    if (tag_ready && tag_valid) begin
      current <= {tag[TAG_BITS-1:LANES+37], tag[LANES+4:0]};
      left    <= tag[LANES+5+:32];
      first   <= 1'b1;
    end else begin
      left  <= left - {30'd0, fifo_take};
      first <= first && !aux_fire;
    end
    if (rst || clear) current_valid <= 1'b0;
    else if (tag_ready) current_valid <= tag_valid;
  end

`ifdef HETERO_ASSERT
  always_ff @(posedge clk) begin
    if (!rst && !clear)
      assert (matrix_take <= matrix_count) else $fatal(1, "stream_dispatch: took beats not offered");
  end
`endif
endmodule

`default_nettype wire
