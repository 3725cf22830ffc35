// Puts a lane's quantised queries into the query registers of all its attention_ports.
//
// What: Takes the heads in order, ATTN_BYTES a cycle; query head h of kv head h / group goes to slot
//   (h mod group) mod ATTN_HEADS of that kv head's entry number (h mod group) / ATTN_HEADS.
// Latency: 1 cycle.
// Throughput: a head takes cfg_chunks cycles.
// Golden: none; an order of storing
`default_nettype none

module query_writer #(
    parameter int ATTN_HEADS = 3,    // query heads that share an entry
    parameter int ATTN_BYTES = 64,   // bytes of a chunk
    parameter int MAX_HEAD_DIM = 64, // 32, 64, 128
    parameter int ENTRY_BITS = 4,
    parameter int SLOT_BITS = 2,
    parameter int CHUNK_BITS = 1
) (
    input  wire                       clk,
    input  wire                       rst,
    input  wire                       clear,      // the next head is head 0
    input  wire  [7:0]                cfg_group,  // query heads of a kv head
    input  wire  [7:0]                cfg_chunks, // head_dim / ATTN_BYTES, rounded up
    input  wire                       in_valid,
    output wire                       in_ready,   // with a head's last chunk
    input  wire  [MAX_HEAD_DIM*8-1:0] in_data,    // zero beyond head_dim
    input  wire  [15:0]               in_mant,
    input  wire  [15:0]               in_exp,
    output logic                      q_we,
    output logic [SLOT_BITS-1:0]      q_slot,
    output logic [ENTRY_BITS-1:0]     q_entry,
    output logic [CHUNK_BITS-1:0]     q_chunk,
    output logic [ATTN_BYTES*8-1:0]   q_data,
    output logic [15:0]               q_mant,
    output logic [15:0]               q_exp
);
    localparam int CHUNKS = MAX_HEAD_DIM > ATTN_BYTES ? MAX_HEAD_DIM / ATTN_BYTES : 1;

    logic [7:0] chunk, slot, in_group;
    logic [ENTRY_BITS-1:0] entry;
    wire last_chunk = chunk + 8'd1 == cfg_chunks;
    wire last_in_group = in_group + 8'd1 == cfg_group;
    wire last_in_entry = last_in_group || slot + 8'd1 == 8'(ATTN_HEADS);
    assign in_ready = last_chunk;
    if (CHUNKS > 1) begin : g_part
        always_ff @(posedge clk) if (in_valid)
            q_data <= in_data[chunk[CHUNK_BITS-1:0]*ATTN_BYTES*8 +: ATTN_BYTES*8];
    end else begin : g_whole
        always_ff @(posedge clk) if (in_valid) q_data <= (ATTN_BYTES*8)'(in_data);
    end

    always_ff @(posedge clk) begin
        q_we <= in_valid;
        if (in_valid) begin
            q_slot <= slot[SLOT_BITS-1:0];
            q_entry <= entry;
            q_chunk <= chunk[CHUNK_BITS-1:0];
            q_mant <= in_mant;
            q_exp <= in_exp;
            chunk <= last_chunk ? 8'd0 : chunk + 8'd1;
            if (last_chunk) begin
                in_group <= last_in_group ? 8'd0 : in_group + 8'd1;
                slot <= last_in_entry ? 8'd0 : slot + 8'd1;
                if (last_in_entry) entry <= entry + ENTRY_BITS'(1);
            end
        end
        if (clear) begin
            chunk <= 8'd0;
            slot <= 8'd0;
            in_group <= 8'd0;
            entry <= '0;
        end
        if (rst) q_we <= 1'b0;
    end
endmodule

`default_nettype wire
