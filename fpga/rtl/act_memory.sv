`default_nettype none
// Activations of one array slice: written a vector word at a time, read 64 columns at a time.
//
// What: PORTS decides how many columns come in one write (4 * PORTS); chunks of that size lie in
//   memories of their own, so that a write touches only its chunk.
// Latency: 1 cycle from read_en to read_data.
// Throughput: a write and a read a cycle.
// Golden: none; what goes in comes out
module act_memory #(
    parameter int PORTS = 4,       // 4 * PORTS columns in a write
    parameter int ACT_COLS = 2048, // columns held, a multiple of 64 (128 with 32 ports)
    parameter int WORD_BITS = 16   // bits of a word index
) (
    input  wire                   clk,
    input  wire                   write_en,
    input  wire  [WORD_BITS-1:0]  write_word,  // columns 4 * PORTS * write_word ..
    input  wire  [PORTS*32-1:0]   write_data,
    input  wire                   read_en,
    input  wire  [WORD_BITS-1:0]  read_group,  // columns 64 * read_group ..
    output wire  [511:0]          read_data
);
    localparam int CHUNK = 4 * PORTS;                    // columns of a write
    localparam int ROW = CHUNK > 64 ? CHUNK : 64;        // columns of a row of the memory
    localparam int CHUNKS = ROW / CHUNK;
    localparam int ROWS = (ACT_COLS + ROW - 1) / ROW;
    localparam int CHUNK_BITS = $clog2(CHUNKS);
    localparam int ROW_BITS = ROWS > 1 ? $clog2(ROWS) : 1;
    localparam int GROUP_BITS = $clog2(ROW / 64);

    wire [WORD_BITS-1:0] write_row = write_word >> CHUNK_BITS;
    wire [WORD_BITS-1:0] read_row = read_group >> GROUP_BITS;
    wire [ROW*8-1:0] row;
    for (genvar c = 0; c < CHUNKS; c++) begin : g_chunk
        logic [CHUNK*8-1:0] memory [0:ROWS-1];
        logic [CHUNK*8-1:0] out;
`ifdef BUG_ACT_MEMORY_1
        wire mine = write_word == WORD_BITS'(c);
`else
        wire mine = write_word - (write_row << CHUNK_BITS) == WORD_BITS'(c);
`endif
        always_ff @(posedge clk) begin
            if (write_en && mine) memory[write_row[ROW_BITS-1:0]] <= write_data;
            if (read_en) out <= memory[read_row[ROW_BITS-1:0]];
        end
        assign row[c*CHUNK*8 +: CHUNK*8] = out;
    end
    if (GROUP_BITS == 0) begin : g_whole
        assign read_data = row;
    end else begin : g_half
        logic upper;
        always_ff @(posedge clk) if (read_en) upper <= read_group[0];
        assign read_data = row[upper*512 +: 512];
    end
    wire unused = &{1'b0, write_row, read_row};
endmodule
`default_nettype wire
