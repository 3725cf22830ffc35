// Philox4x32-10: four random words from a counter and a key.
//
// What:       Ten rounds one after the other (Salmon et al., "Parallel random numbers: as easy as
//             1, 2, 3", SC'11). Stands still while it is empty.
// Latency:    30 cycles.
// Throughput: one request a cycle.
// Golden:     hetero/core/noise.py::philox4x32
`default_nettype none

module philox #(
    parameter int TAG_BITS = 8  // bits of what travels along with a request
) (
    input  wire                 clk,
    input  wire                 rst,
    input  wire                 in_valid,
    input  wire  [127:0]        in_counter,  // word i at [i*32 +: 32]
    input  wire  [63:0]         in_key,      // word i at [i*32 +: 32]
    input  wire  [TAG_BITS-1:0] in_tag,
    output wire                 out_valid,
    output wire  [127:0]        out_words,   // word i at [i*32 +: 32]
    output wire  [TAG_BITS-1:0] out_tag
);
  localparam int ROUNDS = 10;
  localparam int STAGES = 3 * ROUNDS;

  logic [STAGES-1:0]          valid;
  logic [STAGES*TAG_BITS-1:0] tag;
  wire  [(ROUNDS+1)*128-1:0]  counter;
  wire  [(ROUNDS+1)*64-1:0]   key;
  wire                        enable = in_valid || (|valid);

  assign counter[127:0] = in_counter;
  assign key[63:0]      = in_key;
  assign out_valid      = valid[STAGES-1];
  assign out_words      = counter[ROUNDS*128+:128];
  assign out_tag        = tag[(STAGES-1)*TAG_BITS+:TAG_BITS];

  for (genvar i = 0; i < ROUNDS; i++) begin : g_round
    philox_round u_round (
        .clk        (clk),
        .enable     (enable),
        .in_counter (counter[i*128+:128]),
        .in_key     (key[i*64+:64]),
        .out_counter(counter[(i+1)*128+:128]),
        .out_key    (key[(i+1)*64+:64])
    );
  end

  always_ff @(posedge clk) begin
    if (rst) valid <= '0;
    else if (enable) valid <= {valid[STAGES-2:0], in_valid};
    if (enable) tag <= {tag[(STAGES-1)*TAG_BITS-1:0], in_tag};
  end

  wire unused = &{1'b0, key[ROUNDS*64+:64]};
endmodule

`default_nettype wire
