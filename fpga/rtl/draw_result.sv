// The end of DRAW: the best four of a lane's scored candidates, and their shares of the softmax.
//
// What:       Candidates of one lane come one after the other, framed by in_first and in_last;
//             four places sorted by score, ties to the lower id. Then four 8-step divisions side
//             by side, and a beat as in the result buffer into a queue for all lanes.
// Latency:    13 cycles from in_last to out_valid.
// Throughput: a candidate a cycle; in_last at most every 11 cycles; LANES beats may wait.
// Golden:     fpga/golden/draw.py::draw_top
`default_nettype none

module draw_result #(
    parameter int LANES = 4  // beats that can wait to be taken
) (
    input  wire                clk,
    input  wire                rst,
    input  wire                in_valid,
    input  wire  [2:0]         in_lane,
    input  wire                in_first,   // first candidate of its lane
    input  wire                in_last,
    input  wire  signed [63:0] in_score,
    input  wire  [31:0]        in_id,
    input  wire  [31:0]        in_logit,
    input  wire  [23:0]        in_weight,  // 0..2^23; the lane's sum is at least 2^23
    output wire                out_valid,
    input  wire                out_ready,
    output wire  [7:0]         out_lane,
    output wire  [511:0]       out_beat
);
  localparam int TOP = 4;
  localparam int KEY = 96;
  localparam int DEPTH = LANES < 2 ? 2 : 2 ** $clog2(LANES);

  // ---- Best four and sum. A key is larger when its candidate is better.
  logic [TOP-1:0]    used;
  logic [TOP*96-1:0] key;
  logic [TOP*32-1:0] logit;
  logic [TOP*24-1:0] weight;
  logic [29:0]       sum;
  logic              ended;
  logic [2:0]        ended_lane;
`ifdef BUG_DRAW_RESULT_1
  wire [KEY-1:0]     fresh = {~in_score[63], in_score[62:0], in_id};
`else
  wire [KEY-1:0]     fresh = {~in_score[63], in_score[62:0], ~in_id};
`endif
  wire [TOP-1:0]     above;

  for (genvar i = 0; i < TOP; i++) begin : g_place
    localparam int UP = i == 0 ? 0 : i - 1;
    assign above[i] = in_first || !used[i] || fresh > key[i*KEY+:KEY];
    wire from_input = i == 0 || !above[UP];
    always_ff @(posedge clk) begin
      if (in_valid && above[i]) begin
        used[i] <= in_first ? i == 0 : from_input || used[UP];
        key[i*KEY+:KEY] <= from_input ? fresh : key[UP*KEY+:KEY];
        logit[i*32+:32] <= from_input ? in_logit : logit[UP*32+:32];
        weight[i*24+:24] <= from_input ? in_weight : weight[UP*24+:24];
      end
    end
  end

  always_ff @(posedge clk) begin
    ended <= in_valid && in_last && !rst;
    if (in_valid) begin
      ended_lane <= in_lane;
      sum <= (in_first ? 30'd0 : sum) + {6'd0, in_weight};
    end
  end

  // ---- confidence = floor((255 * weight + floor(sum / 2)) / sum), below 256: one bit a step.
  logic [TOP-1:0]    d_used;
  logic [TOP*32-1:0] d_id, d_logit, numerator;
  logic [TOP*30-1:0] rest;      // < sum
  logic [TOP*8-1:0]  low_bits;  // of the numerator, still to come
  logic [TOP*8-1:0]  quotient;
  logic [29:0]       d_sum;
  logic [2:0]        d_lane;
  logic              prepared;  // numerator is valid
  logic [3:0]        steps;     // still to do; 1..8 while dividing
  logic              push;

  for (genvar i = 0; i < TOP; i++) begin : g_divide
    wire [31:0] wide = 32'(weight[i*24+:24]);
    wire [30:0] trial = {rest[i*30+:30], low_bits[i*8+7]};
    wire        fits = trial >= {1'b0, d_sum};
    wire [30:0] less = trial - {1'b0, d_sum};
    wire        unused_bits = &{1'b0, less[30], trial[30]};
    always_ff @(posedge clk) begin
      if (ended) begin
        numerator[i*32+:32] <= (wide << 8) - wide + {3'd0, sum[29:1]};
        d_used[i] <= used[i];
        d_id[i*32+:32] <= used[i] ? ~key[i*KEY+:32] : 32'd0;
        d_logit[i*32+:32] <= used[i] ? logit[i*32+:32] : 32'd0;
      end
      if (prepared) begin
        rest[i*30+:30] <= {6'd0, numerator[i*32+8+:24]};
        low_bits[i*8+:8] <= numerator[i*32+:8];
      end else if (steps != 4'd0) begin
        rest[i*30+:30] <= fits ? less[29:0] : trial[29:0];
        low_bits[i*8+:8] <= {low_bits[i*8+:7], 1'b0};
        quotient[i*8+:8] <= {quotient[i*8+:7], fits};
      end
    end
  end

  always_ff @(posedge clk) begin
    prepared <= ended && !rst;
    push <= steps == 4'd1 && !rst;
    if (ended) begin
      d_sum <= sum;
      d_lane <= ended_lane;
    end
    if (rst) steps <= 4'd0;
    else if (prepared) steps <= 4'd8;
    else if (steps != 4'd0) steps <= steps - 4'd1;
  end

  // ---- The beat.
  wire [TOP*32-1:0] d_confidence;
  for (genvar i = 0; i < TOP; i++) begin : g_confidence
    assign d_confidence[i*32+:32] = d_used[i] ? {24'd0, quotient[i*8+:8]} : 32'd0;
  end
  wire [31:0] num_top = 32'(d_used[0]) + 32'(d_used[1]) + 32'(d_used[2]) + 32'(d_used[3]);
  wire [511:0] beat = {d_logit, d_confidence, d_id, 32'd0, num_top, d_confidence[31:0], d_id[31:0]};
  wire [2:0] lane;
  wire queue_ready;
  wire [$clog2(DEPTH):0] queue_level;

  stream_fifo #(
      .WIDTH(515),
      .DEPTH(DEPTH)
  ) u_queue (
      .clk      (clk),
      .rst      (rst),
      .clear    (1'b0),
      .in_valid (push),
      .in_ready (queue_ready),
      .in_data  ({d_lane, beat}),
      .out_valid(out_valid),
      .out_ready(out_ready),
      .out_data ({lane, out_beat}),
      .level    (queue_level)
  );
  assign out_lane = {5'd0, lane};
  wire unused = &{1'b0, queue_level, queue_ready};

`ifdef HETERO_ASSERT
  always_ff @(posedge clk) begin
    if (!rst && ended) begin
      assert (!prepared && steps == 4'd0) else $fatal(1, "draw_result: lanes end too close together");
    end
    if (!rst && push) begin
      assert (queue_ready) else $fatal(1, "draw_result: more than LANES beats wait");
    end
  end
`endif
endmodule

`default_nettype wire
