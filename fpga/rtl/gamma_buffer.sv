// The weights of a norm, for all lanes: filled from the ports' aux channels ahead of their use.
//
// What:       Two halves, one norm in each. A port's beats go into its bank of the half being filled
//             until a_end; when all ports have filled a half, `ready` rises and lanes may read it;
//             `release_half` (the norm is done) gives it back. Lanes run in lock step: of their
//             requests any one counts, all see the data.
// Latency: 3 cycles from read_en to read_data.
// Throughput: a beat of each port and a word of all ports a cycle.
// Golden: none; words come out as they went in
`default_nettype none

module gamma_buffer #(
    parameter int PORTS = 4,     // memory ports
    parameter int LANES = 4,     // lanes
    parameter int ACT_COLS = 512, // widest vector
    parameter int WORD_BITS = 16 // bits of a word index
) (
    input  wire                        clk,
    input  wire                        rst,
    input  wire                        clear,        // forget everything (a start begins)
    // aux channel of each port, transfers of kind GAMMA only
    input  wire  [PORTS-1:0]           g_valid,
    output logic [PORTS-1:0]           g_ready,
    input  wire  [PORTS*512-1:0]       g_data,       // 8 local tiles x 4 int16
    input  wire  [PORTS-1:0]           g_end,        // the norm's last beat on this port
    // lanes (lane_vector)
    output logic                       ready,        // the next norm's weights are here
    input  wire  [LANES-1:0]           read_en,
    input  wire  [LANES*WORD_BITS-1:0] read_word,    // counted from the norm's first word; 0 if not read_en
    output wire  [PORTS*64-1:0]        read_data,    // 4 * PORTS int16 in element order, 3 cycles later
    input  wire  [LANES-1:0]           release_half  // pulse: the norm is done
);
    localparam int WORDS = (ACT_COLS + 4 * PORTS - 1) / (4 * PORTS);
    localparam int BEATS = (WORDS + 7) / 8;
    localparam int BEAT_BITS = BEATS > 1 ? $clog2(BEATS) : 1;

    logic read_half;
    logic [PORTS-1:0] full0, full1;
    assign ready = read_half ? full1 == '1 : full0 == '1;
    wire released = release_half != '0;

    // 1: the lanes' word
    logic [WORD_BITS-1:0] word, any_word;
    logic enable1, enable2;
    logic [2:0] tile2;
    always_comb begin
        any_word = '0;
        for (int l = 0; l < LANES; l++) any_word = any_word | read_word[l*WORD_BITS +: WORD_BITS];
    end
    always_ff @(posedge clk) begin
        if (read_en != '0) word <= any_word;
        if (enable1) tile2 <= word[2:0];
        enable1 <= read_en != '0;
        enable2 <= enable1;
        if (released) read_half <= !read_half;
        if (rst || clear) read_half <= 1'b0;
    end
    wire [BEAT_BITS:0] read_address = {read_half, word[3 +: BEAT_BITS]};

    for (genvar p = 0; p < PORTS; p++) begin : g_port
        logic [511:0] memory [0:2**(BEAT_BITS+1)-1];
        logic write_half;
        logic [BEAT_BITS-1:0] beat;
        wire take = g_valid[p] && g_ready[p];
`ifdef BUG_GAMMA_BUFFER_1
        assign g_ready[p] = 1'b1;
`else
        assign g_ready[p] = write_half ? !full1[p] : !full0[p];
`endif
        always_ff @(posedge clk) begin
            if (take) begin
                memory[{write_half, beat}] <= g_data[p*512 +: 512];
                beat <= g_end[p] ? '0 : beat + BEAT_BITS'(1);
                if (g_end[p]) begin
                    write_half <= !write_half;
                    if (write_half) full1[p] <= 1'b1;
                    else full0[p] <= 1'b1;
                end
            end
            if (released && read_half) full1[p] <= 1'b0;
            if (released && !read_half) full0[p] <= 1'b0;
            if (rst || clear) begin
                {full0[p], full1[p], write_half} <= '0;
                beat <= '0;
            end
        end

        // 2: the beat; 3: of its eight tiles the one
        logic [511:0] beat2;
        logic [63:0] tile3;
        always_ff @(posedge clk) begin
            if (enable1) beat2 <= memory[read_address];
            if (enable2) tile3 <= beat2[tile2*64 +: 64];
        end
        assign read_data[p*64 +: 64] = tile3;

`ifdef HETERO_ASSERT
        always_ff @(posedge clk) if (!rst && take && !g_end[p])
            assert (32'(beat) + 1 < BEATS) else $error("gamma_buffer: norm wider than ACT_COLS");
`endif
    end

    wire unused = &{1'b0, word};
endmodule
`default_nettype wire
