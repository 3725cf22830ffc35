// lane_vector, lane_memory and gamma_buffer of LANES lanes wired as in the card, with the drains'
// ports and a second writer brought out for the bench.
`default_nettype none
module vector_lanes #(
    parameter int PORTS = 4,
    parameter int LANES = 2,
    parameter int BANK_WORDS = 64,
    parameter int ACT_COLS = 512
) (
    input  wire                        clk,
    input  wire                        rst,
    input  wire  [511:0]               op_word,
    input  wire                        op_use_absmax,
    input  wire                        absmax_clear,
    input  wire  [LANES-1:0]           active,
    input  wire                        start,
    output wire  [LANES-1:0]           done,
    output wire  [LANES-1:0]           busy,
    input  wire  [LANES-1:0]           x_en,      // the other writer
    input  wire  [PORTS-1:0]           x_mask,
    input  wire  [15:0]                x_word,
    input  wire  [PORTS*128-1:0]       x_data,
    input  wire  [LANES*PORTS-1:0]     d_we,      // drains
    input  wire  [PORTS*16-1:0]        d_word,
    input  wire  [PORTS*128-1:0]       d_data,
    input  wire  [PORTS-1:0]           d_read_en,
    input  wire  [PORTS*16-1:0]        d_read_word,
    output wire  [LANES*PORTS*128-1:0] a_data,
    output wire  [LANES*31-1:0]        absmax,
    output wire  [LANES-1:0]           absmax_ready,
    input  wire  [PORTS-1:0]           g_valid,
    output wire  [PORTS-1:0]           g_ready,
    input  wire  [PORTS*512-1:0]       g_data,
    input  wire  [PORTS-1:0]           g_end,
    output wire  [LANES-1:0]           act_we,
    output wire  [LANES*16-1:0]        act_word,
    output wire  [LANES*PORTS*32-1:0]  act_data,
    output wire  [LANES*16-1:0]        act_mant,
    output wire  [LANES*16-1:0]        act_exp
);
    wire gamma_ready;
    wire [LANES-1:0] gamma_en, gamma_release;
    wire [LANES*16-1:0] gamma_word;
    wire [PORTS*64-1:0] gamma_data;
    gamma_buffer #(.PORTS(PORTS), .LANES(LANES), .ACT_COLS(ACT_COLS)) u_gamma (
        .clk(clk), .rst(rst), .clear(1'b0),
        .g_valid(g_valid), .g_ready(g_ready), .g_data(g_data), .g_end(g_end),
        .ready(gamma_ready), .read_en(gamma_en), .read_word(gamma_word),
        .read_data(gamma_data), .release_half(gamma_release)
    );
    for (genvar l = 0; l < LANES; l++) begin : g_lane
        wire a_en, b_en, w_en;
        wire [15:0] a_word, b_word, w_word;
        wire [PORTS-1:0] w_mask;
        wire [PORTS*128-1:0] b_data, w_data;
        lane_memory #(.PORTS(PORTS), .BANK_WORDS(BANK_WORDS)) u_memory (
            .clk(clk), .rst(rst),
            .a_en(a_en), .a_word(a_word), .a_data(a_data[l*PORTS*128 +: PORTS*128]),
            .d_read_en(d_read_en), .d_read_word(d_read_word),
            .b_en(b_en), .b_word(b_word), .b_data(b_data),
            .d_we(d_we[l*PORTS +: PORTS]), .d_word(d_word), .d_data(d_data),
            .w_en(w_en || x_en[l]), .w_mask(w_mask | (x_en[l] ? x_mask : '0)),
            .w_word(w_word | (x_en[l] ? x_word : '0)),
            .w_data(w_data | (x_en[l] ? x_data : '0)),
            .absmax_clear(absmax_clear), .absmax(absmax[l*31 +: 31]),
            .absmax_ready(absmax_ready[l])
        );
        lane_vector #(.PORTS(PORTS)) u_vector (
            .clk(clk), .rst(rst),
            .op_word(op_word), .op_use_absmax(op_use_absmax), .active(active[l]), .start(start),
            .done(done[l]), .busy(busy[l]),
            .absmax_ready(&absmax_ready), .absmax(absmax[l*31 +: 31]),
            .a_en(a_en), .a_word(a_word), .a_data(a_data[l*PORTS*128 +: PORTS*128]),
            .b_en(b_en), .b_word(b_word), .b_data(b_data),
            .w_en(w_en), .w_mask(w_mask), .w_word(w_word), .w_data(w_data),
            .gamma_ready(gamma_ready), .gamma_en(gamma_en[l]),
            .gamma_word(gamma_word[l*16 +: 16]), .gamma_data(gamma_data),
            .gamma_release(gamma_release[l]),
            .act_we(act_we[l]), .act_word(act_word[l*16 +: 16]),
            .act_data(act_data[l*PORTS*32 +: PORTS*32]),
            .act_mant(act_mant[l*16 +: 16]), .act_exp(act_exp[l*16 +: 16])
        );
    end
endmodule
`default_nettype wire
