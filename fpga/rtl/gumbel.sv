// Gumbel noise of a 32-bit random word, in units of 2^-20: table and linear interpolation.
//
// What:       The leading one of the distance to the tail and the 7 bits below it choose the knot,
//             the 16 bits after them are the fraction (docs/noise.md). Stands still while empty.
// Latency:    8 cycles.
// Throughput: one word a cycle.
// Golden:     hetero/core/noise.py::gumbel_from_words
`default_nettype none
`include "tables.svh"

module gumbel #(
    parameter int TAG_BITS = 8  // bits of what travels along with a word
) (
    input  wire                 clk,
    input  wire                 rst,
    input  wire                 in_valid,
    input  wire  [31:0]         in_word,
    input  wire  [TAG_BITS-1:0] in_tag,
    output wire                 out_valid,
    output logic [25:0]         out_gumbel,  // signed
    output wire  [TAG_BITS-1:0] out_tag
);
  localparam int STAGES = 8;
  localparam int BITS = `TABLE_GUMBEL_LOWER_BITS;
  localparam int ENTRIES = `TABLE_GUMBEL_LOWER_ENTRIES;

  logic signed [BITS-1:0] gumbel_lower[0:ENTRIES-1];
  logic signed [BITS-1:0] gumbel_upper[0:ENTRIES-1];
  initial begin
    `include "gumbel_lower.svh"
  end
  initial begin
    `include "gumbel_upper.svh"
  end

  function automatic logic [4:0] leading_one(input logic [30:0] value_i);
    begin
      leading_one = 5'd0;
      for (int i = 0; i < 31; i++) if (value_i[i]) leading_one = 5'(i);
    end
  endfunction

  logic [STAGES-1:0]          valid;
  logic [STAGES*TAG_BITS-1:0] tag;
  wire                        enable = in_valid || (|valid);

  logic                   half_1, half_2, half_3, half_4;
  logic [30:0]            distance_1, distance_2;
  logic                   zero_2;
  logic [4:0]             lead_2;
  logic [11:0]            knot_3, next_3;
  logic [15:0]            fraction_3, fraction_4, fraction_5, fraction_6;
  logic signed [BITS-1:0] lower_knot_4, lower_next_4, upper_knot_4, upper_next_4;
  logic signed [BITS-1:0] low_5, high_5, low_6, low_7;
  logic signed [BITS:0]   step_6;
  logic signed [BITS+17:0] product_7;

  // The leading one goes to bit 30 (bit 31 of the golden function's `normal`).
  wire [30:0] normal = distance_2 << (5'd30 - lead_2);
  // What is below the fraction and the sum's upper bits are not used.
  wire unused = &{1'b0, normal[30], normal[6:0], product_7[15:0], product_7[BITS+17:BITS+16]};

  assign out_valid = valid[STAGES-1];
  assign out_tag   = tag[(STAGES-1)*TAG_BITS+:TAG_BITS];

  always_ff @(posedge clk) begin
    if (rst) valid <= '0;
    else if (enable) valid <= {valid[STAGES-2:0], in_valid};
    if (enable) begin
      tag <= {tag[(STAGES-1)*TAG_BITS-1:0], in_tag};

      half_1 <= in_word[31];
      distance_1 <= in_word[31] ? ~in_word[30:0] : in_word[30:0];

      half_2 <= half_1;
      distance_2 <= distance_1;
      zero_2 <= distance_1 == 31'd0;
      lead_2 <= leading_one(distance_1);

      half_3 <= half_2;
`ifdef BUG_GUMBEL_1
      knot_3 <= {lead_2, normal[29:23]} + 12'd1;
`else
      knot_3 <= zero_2 ? 12'd0 : {lead_2, normal[29:23]} + 12'd1;
`endif
      next_3 <= zero_2 ? 12'd1 : {lead_2, normal[29:23]} + 12'd2;
      fraction_3 <= zero_2 ? 16'd0 : normal[22:7];

      half_4 <= half_3;
      fraction_4 <= fraction_3;
      lower_knot_4 <= gumbel_lower[knot_3];
      lower_next_4 <= gumbel_lower[next_3];
      upper_knot_4 <= gumbel_upper[knot_3];
      upper_next_4 <= gumbel_upper[next_3];

      fraction_5 <= fraction_4;
      low_5 <= half_4 ? upper_knot_4 : lower_knot_4;
      high_5 <= half_4 ? upper_next_4 : lower_next_4;

      fraction_6 <= fraction_5;
      low_6 <= low_5;
      step_6 <= (BITS + 1)'(high_5) - (BITS + 1)'(low_5);

      low_7 <= low_6;
      product_7 <= step_6 * $signed({1'b0, fraction_6});

      out_gumbel <= low_7 + product_7[16+:BITS];
    end
  end
endmodule

`default_nettype wire
