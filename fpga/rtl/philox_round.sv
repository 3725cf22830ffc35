// One round of Philox4x32: two 32x32 multiplications by constants, exclusive ors, next key.
//
// What:       Each product is made of four 16x16 ones, then summed in two steps.
// Latency:    3 cycles.
// Throughput: one request a cycle, while `enable`.
// Golden:     hetero/core/noise.py::philox4x32, the body of its loop.
`default_nettype none

module philox_round (
    input  wire          clk,
    input  wire          enable,      // 0: nothing moves
    input  wire  [127:0] in_counter,  // word i at [i*32 +: 32]
    input  wire  [63:0]  in_key,
    output logic [127:0] out_counter,
    output logic [63:0]  out_key
);
  localparam logic [31:0] M0 = 32'hD2511F53;
  localparam logic [31:0] M1 = 32'hCD9E8D57;
  localparam logic [31:0] W0 = 32'h9E3779B9;
  localparam logic [31:0] W1 = 32'hBB67AE85;

  // Partial products [multiplier][low x low, low x high, high x low, high x high].
  logic [31:0] ll_0, lh_0, hl_0, hh_0;
  logic [31:0] ll_1, lh_1, hl_1, hh_1;
  logic [32:0] middle_0, middle_1;
  logic [63:0] outer_0, outer_1;
  logic [63:0] odd_words, odd_mixed;  // counter words 1 (low half) and 3
  logic [63:0] key_1, key_2;

  wire [31:0] word_0 = in_counter[31:0];
  wire [31:0] word_2 = in_counter[95:64];
  wire [63:0] product_0 = outer_0 + {15'd0, middle_0, 16'd0};
  wire [63:0] product_1 = outer_1 + {15'd0, middle_1, 16'd0};

  always_ff @(posedge clk) begin
    if (enable) begin
      ll_0 <= word_0[15:0] * M0[15:0];
      lh_0 <= word_0[15:0] * M0[31:16];
      hl_0 <= word_0[31:16] * M0[15:0];
      hh_0 <= word_0[31:16] * M0[31:16];
      ll_1 <= word_2[15:0] * M1[15:0];
      lh_1 <= word_2[15:0] * M1[31:16];
      hl_1 <= word_2[31:16] * M1[15:0];
      hh_1 <= word_2[31:16] * M1[31:16];
      odd_words <= {in_counter[127:96], in_counter[63:32]};
      key_1 <= in_key;

      middle_0 <= {1'b0, lh_0} + {1'b0, hl_0};
      middle_1 <= {1'b0, lh_1} + {1'b0, hl_1};
      outer_0 <= {hh_0, ll_0};
      outer_1 <= {hh_1, ll_1};
      odd_mixed <= odd_words ^ key_1;
      key_2 <= {key_1[63:32] + W1, key_1[31:0] + W0};

`ifdef BUG_PHILOX_ROUND_1
      out_counter[31:0] <= product_0[63:32] ^ odd_mixed[31:0];
`else
      out_counter[31:0] <= product_1[63:32] ^ odd_mixed[31:0];
`endif
      out_counter[63:32] <= product_1[31:0];
      out_counter[95:64] <= product_0[63:32] ^ odd_mixed[63:32];
      out_counter[127:96] <= product_0[31:0];
      out_key <= key_2;
    end
  end
endmodule

`default_nettype wire
