// DRAW: for each sampled lane the token with the largest perturbed logit, the runners-up, and how
// sure the draft is of each of them.
//
// What:       A lane's candidates stream in, best logit first, one a cycle. Their noise takes the
//             longest way (philox, gumbel); scaled logits and softmax weights wait for it in
//             rings, and draw_result keeps the best four. The largest scaled logit is the first.
// Latency:    58 + held cycles from start to the first out_valid.
// Throughput: a lane every held + 1 cycles; at least 12 between two lanes' ends.
// Golden:     fpga/golden/draw.py::draw_top
`default_nettype none

module draw_unit #(
    parameter int LANES = 4  // rows of a pass, up to 8
) (
    input  wire                 clk,
    input  wire                 rst,
    input  wire                 start,             // pulse: start_draw
    input  wire  [LANES-1:0]    active,            // lanes to draw for (op_active)
    input  wire  [5:0]          logit_frac,        // operand of DRAW, 0..62
    // row r of the pass at [r*width +: width]; stable from start to done
    input  wire  [LANES*64-1:0] lane_seed,
    input  wire  [LANES*32-1:0] lane_output_index, // of the token drawn now (output_index + step)
    input  wire  [LANES*32-1:0] lane_choice,
    input  wire  [LANES*32-1:0] lane_inv_t,        // 16 fraction bits, at most 2^24; 0: greedy
    // top_candidates of all lanes
    input  wire  [LANES*7-1:0]  held,              // at least 1 in an active lane
    output logic [5:0]          rd_index,          // to all lanes
    input  wire  [LANES*32-1:0] rd_logit,          // one cycle after rd_index
    input  wire  [LANES*32-1:0] rd_id,
    // drawn, in rising order of rows; out_beat as in the result buffer: word 0 token, 1 confidence,
    // 2 num_top, 4.. ids, 8.. confidences, 12.. logits of the best four (zero beyond num_top)
    output wire                 out_valid,
    input  wire                 out_ready,
    output wire  [7:0]          out_lane,          // row of the pass
    output wire  [511:0]        out_beat,
    output logic                done               // pulse: every active lane's beat was taken
);
  localparam logic [31:0] GREEDY_INV_T = 32'd65536;
  localparam logic [3:0]  DIVISION = 4'd12;  // cycles between two lanes' last candidates, at least
  localparam logic [16:0] LOG2_E_Q16 = 17'd94548;
  localparam int          TAG = 8;

  // ---- Issue: lanes one after the other, candidates one a cycle.
  logic [LANES-1:0] todo;
  logic             issuing;
  logic [2:0]       lane;
  logic [5:0]       index, last_index;
  logic [3:0]       dividing;  // counts down from a lane's last candidate
  logic [63:0]      seed;
  logic [31:0]      output_index, choice, inv_t;
  logic             valid_0, first_0, last_0;
  logic [2:0]       lane_0;

  function automatic logic [2:0] lowest(input logic [LANES-1:0] mask_i);
    begin
      lowest = 3'd0;
      for (int i = LANES - 1; i >= 0; i--) if (mask_i[i]) lowest = 3'(i);
    end
  endfunction

  wire [2:0] next_lane = lowest(todo);
  wire [6:0] next_held = held[32'(next_lane)*7+:7];
  wire       pick = !issuing && todo != '0 && (dividing == 4'd0 || next_held >= 7'(DIVISION));

  always_ff @(posedge clk) begin
    valid_0 <= issuing;
    if (issuing || pick || start) begin
      rd_index <= index;
      first_0 <= index == 6'd0;
      last_0 <= index == last_index;
      lane_0 <= lane;
      index <= index + 6'd1;
      if (pick) begin
        lane <= next_lane;
        index <= 6'd0;
        last_index <= 6'(next_held - 7'd1);
        seed <= lane_seed[32'(next_lane)*64+:64];
        output_index <= lane_output_index[32'(next_lane)*32+:32];
        choice <= lane_choice[32'(next_lane)*32+:32];
        inv_t <= lane_inv_t[32'(next_lane)*32+:32];
      end
    end
    if (rst) begin
      todo <= '0;
      issuing <= 1'b0;
      dividing <= 4'd0;
      valid_0 <= 1'b0;
    end else begin
      if (start) todo <= active;
      else if (pick) todo <= todo & ~(LANES'(1) << next_lane);
      if (pick) issuing <= 1'b1;
      else if (index == last_index) issuing <= 1'b0;
      if (issuing && index == last_index) dividing <= DIVISION;
      else if (dividing != 4'd0) dividing <= dividing - 4'd1;
    end
  end

  // ---- Stage 1: the candidate arrives. Stage 2: it and its lane's parameters in registers.
  logic        valid_1, first_1, last_1;
  logic [2:0]  lane_1;
  logic        valid_2, first_2, last_2, greedy_2;
  logic [2:0]  lane_2;
  logic [31:0] logit_2, id_2;
  logic [63:0] seed_2;
  logic [31:0] output_index_2, choice_2;
  logic [24:0] inv_t_2;

  always_ff @(posedge clk) begin
    valid_1 <= valid_0 && !rst;
    valid_2 <= valid_1 && !rst;
    if (valid_0) begin
      first_1 <= first_0;
      last_1 <= last_0;
      lane_1 <= lane_0;
    end
    if (valid_1) begin
      first_2 <= first_1;
      last_2 <= last_1;
      lane_2 <= lane_1;
      logit_2 <= rd_logit[32'(lane_1)*32+:32];
      id_2 <= rd_id[32'(lane_1)*32+:32];
    end
    // Before the next lane can be picked, and after the last one's candidates have gone.
    if (valid_0 && first_0) begin
      seed_2 <= seed;
      output_index_2 <= output_index;
      choice_2 <= choice;
      greedy_2 <= inv_t == 32'd0;
      inv_t_2 <= inv_t == 32'd0 ? 25'(GREEDY_INV_T) : inv_t[24:0];
    end
  end

  // ---- Noise.
  wire           philox_valid, gumbel_valid;
  wire [127:0]   philox_words;
  wire [TAG-1:0] philox_tag, gumbel_tag;
  wire [25:0]    noise;
  logic          word_valid;
  logic [31:0]   word;
  logic [TAG-1:0] word_tag;

  philox #(
      .TAG_BITS(TAG)
  ) u_philox (
      .clk       (clk),
      .rst       (rst),
      .in_valid  (valid_2),
`ifdef BUG_DRAW_UNIT_1
      .in_counter({32'd0, 32'd0, 2'b00, id_2[31:2], output_index_2}),
`else
      .in_counter({32'd0, choice_2, 2'b00, id_2[31:2], output_index_2}),
`endif
      .in_key    (seed_2),
      .in_tag    ({lane_2, first_2, last_2, greedy_2, id_2[1:0]}),
      .out_valid (philox_valid),
      .out_words (philox_words),
      .out_tag   (philox_tag)
  );

  always_ff @(posedge clk) begin
    word_valid <= philox_valid && !rst;
    if (philox_valid) begin
      word <= philox_words[32'(philox_tag[1:0])*32+:32];
      word_tag <= philox_tag;
    end
  end

  gumbel #(
      .TAG_BITS(TAG)
  ) u_gumbel (
      .clk       (clk),
      .rst       (rst),
      .in_valid  (word_valid),
      .in_word   (word),
      .in_tag    (word_tag),
      .out_valid (gumbel_valid),
      .out_gumbel(noise),
      .out_tag   (gumbel_tag)
  );

  // ---- z = rnd(logit * inv_t, frac - 4): one bit below the unit is kept until the last stage.
  logic [11:3]        scale_valid;
  logic               scale_first_3, scale_first_4, scale_first_5, scale_first_6, scale_first_7;
  logic signed [42:0] low_3, high_3;
  logic signed [58:0] product_4;
  logic signed [65:0] coarse_5, fine_6;
  logic signed [63:0] scaled_7, scaled_8, largest_8;
  logic [63:0]        below_9;
  logic [24:0]        below_10;
  logic [41:0]        log2_11;
  wire [6:0]          amount = {1'b0, logit_frac} + 7'd3;
  wire signed [65:0]  product_shifted = {product_4[57:0], 8'd0};  // 58 bits hold it

  always_ff @(posedge clk) begin
    scale_valid <= rst ? 9'd0 : {scale_valid[10:3], valid_2};
    if (valid_2 || scale_valid != 9'd0) begin
      low_3 <= $signed({1'b0, logit_2[15:0]}) * $signed({1'b0, inv_t_2});
      high_3 <= $signed(logit_2[31:16]) * $signed({1'b0, inv_t_2});
      scale_first_3 <= first_2;
      product_4 <= 59'(low_3) + (59'(high_3) <<< 16);
      scale_first_4 <= scale_first_3;
      coarse_5 <= product_shifted >>> {amount[6:4], 4'd0};
      scale_first_5 <= scale_first_4;
      fine_6 <= coarse_5 >>> amount[3:0];
      scale_first_6 <= scale_first_5;
`ifdef BUG_DRAW_UNIT_2
      scaled_7 <= 64'(fine_6 >>> 1);
`else
      scaled_7 <= 64'((fine_6 + 66'sd1) >>> 1);
`endif
      scale_first_7 <= scale_first_6;
      scaled_8 <= scaled_7;
      if (scale_valid[7] && scale_first_7) largest_8 <= scaled_7;
      // Distance to the best, at most where its weight is long 0; then log2 units of 2^-16.
      below_9 <= largest_8 - scaled_8;
      below_10 <= below_9[63:25] != '0 ? 25'h1ffffff : below_9[24:0];
      log2_11 <= below_10 * LOG2_E_Q16;
    end
  end

  // ---- Softmax weight.
  wire        weight_valid;
  wire [23:0] weight;
  exp2n u_exp2n (
      .clk        (clk),
      .rst        (rst),
      .in_valid   (scale_valid[11]),
      .in_distance({10'd0, log2_11[41:20]}),
      .out_valid  (weight_valid),
      .out_value  (weight)
  );

  // ---- Rings: what waits for the noise, in order of issue. Fewer than 64 are ever under way.
  logic [63:0] candidate_ring[0:63];
  logic [63:0] scaled_ring   [0:63];
  logic [23:0] weight_ring   [0:63];
  logic [5:0]  candidate_at, scaled_at, weight_at, ring_at;
  logic        valid_43, valid_44;
  logic [TAG-1:0] tag_43, tag_44;
  logic signed [25:0] noise_43;
  logic signed [63:0] scaled_43, score_44;
  logic [63:0] candidate_43, candidate_44;
  logic [23:0] weight_43, weight_44;
  logic [5:0]  next_rank;
  wire  [5:0]  rank_43 = tag_43[4] ? 6'd0 : next_rank;

  always_ff @(posedge clk) begin
    if (valid_2) candidate_ring[candidate_at] <= {logit_2, id_2};
    if (scale_valid[7]) scaled_ring[scaled_at] <= scaled_7;
    if (weight_valid) weight_ring[weight_at] <= weight;
    if (rst) begin
      candidate_at <= 6'd0;
      scaled_at <= 6'd0;
      weight_at <= 6'd0;
      ring_at <= 6'd0;
    end else begin
      if (valid_2) candidate_at <= candidate_at + 6'd1;
      if (scale_valid[7]) scaled_at <= scaled_at + 6'd1;
      if (weight_valid) weight_at <= weight_at + 6'd1;
      if (gumbel_valid) ring_at <= ring_at + 6'd1;
    end
    valid_43 <= gumbel_valid && !rst;
    valid_44 <= valid_43 && !rst;
    if (gumbel_valid) begin
      tag_43 <= gumbel_tag;
      noise_43 <= noise;
      candidate_43 <= candidate_ring[ring_at];
      scaled_43 <= scaled_ring[ring_at];
      weight_43 <= weight_ring[ring_at];
    end
    if (valid_43) begin
      tag_44 <= tag_43;
      candidate_44 <= candidate_43;
      weight_44 <= weight_43;
      // Greedy: the candidates' own order; scaled logits may be equal where logits are not.
      score_44 <= tag_43[2] ? ~{58'd0, rank_43} : scaled_43 + 64'(noise_43);
      next_rank <= rank_43 + 6'd1;
    end
  end

  draw_result #(
      .LANES(LANES)
  ) u_result (
      .clk      (clk),
      .rst      (rst),
      .in_valid (valid_44),
      .in_lane  (tag_44[7:5]),
      .in_first (tag_44[4]),
      .in_last  (tag_44[3]),
      .in_score (score_44),
      .in_id    (candidate_44[31:0]),
      .in_logit (candidate_44[63:32]),
      .in_weight(weight_44),
      .out_valid(out_valid),
      .out_ready(out_ready),
      .out_lane (out_lane),
      .out_beat (out_beat)
  );

  // ---- End: every active lane has been taken.
  logic             running;
  logic [LANES-1:0] untaken;
  always_ff @(posedge clk) begin
    done <= 1'b0;
    if (rst) running <= 1'b0;
    else if (start) begin
      running <= 1'b1;
      untaken <= active;
    end else begin
      if (out_valid && out_ready) untaken <= untaken & ~(LANES'(1) << out_lane[2:0]);
      if (running && untaken == '0) begin
        running <= 1'b0;
        done <= 1'b1;
      end
    end
  end

  wire unused = &{1'b0, inv_t[31:25], log2_11[19:0], product_4[58], tag_44[2:0], out_lane[7:3]};

`ifdef HETERO_ASSERT
  always_ff @(posedge clk) begin
    if (!rst && start) begin
      assert (!running) else $fatal(1, "draw_unit: started while drawing");
    end
    if (!rst && pick) begin
      assert (next_held != 7'd0) else $fatal(1, "draw_unit: a lane has no candidate");
    end
  end
`endif
`ifndef SYNTHESIS
  if (LANES < 1 || LANES > 8) begin : g_check
    initial $fatal(1, "draw_unit: LANES = %0d must be 1 to 8", LANES);
  end
`endif
endmodule

`default_nettype wire
