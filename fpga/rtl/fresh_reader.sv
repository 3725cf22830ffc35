// A lane's copy of this pass's keys and values, and who sees them.
//
// What: Keeps the records of all rows; gives those of the rows that its own row sees, once for the
//   keys and once for the values.
// Latency: 2 cycles from start to out_valid.
// Throughput: one record a cycle.
// Golden: fpga/golden/attention.py::attend (which rows it sees)
`default_nettype none

module fresh_reader #(
    parameter int LANES = 1,         // rows of a pass
    parameter int ROW = 0,           // the row that reads
    parameter int MAX_HEAD_DIM = 64, // 32, 64, 128
    parameter int KV_BITS = 3,       // bits of a kv head
    parameter int REC_BITS = 4       // bits of {row, kv head}
) (
    input  wire                      clk,
    input  wire                      rst,
    input  wire  [7:0]               cfg_kv_heads,
    input  wire  [LANES-1:0]         cfg_visible,  // rows that it sees; its own among them
    // records to keep
    input  wire                      put,
    input  wire                      put_is_value,
    input  wire  [REC_BITS-1:0]      put_at,
    input  wire  [MAX_HEAD_DIM*8-1:0] put_data,
    input  wire  [31:0]              put_scale,
    // reading
    input  wire                      start,        // pulse
    input  wire                      start_values, // with start: values, else keys
    output logic                     out_valid,
    input  wire                      out_ready,
    output logic                     out_last,
    output logic [KV_BITS-1:0]       out_kv_head,
    output logic [MAX_HEAD_DIM*8-1:0] out_data,
    output logic [63:0]              out_scale     // key word, value word
);
    localparam int ROW_BITS = LANES > 1 ? $clog2(LANES) : 1;
    localparam int RECORDS = 1 << REC_BITS;

    logic [LANES-1:0] rows_left; // the row in turn included
    logic [7:0] kv_head;
    logic is_value;
    wire [LANES-1:0] others = rows_left & (rows_left - LANES'(1));
    logic [ROW_BITS-1:0] row;
    always_comb begin
        row = '0;
        for (int i = LANES - 1; i >= 0; i--) if (rows_left[i]) row = ROW_BITS'(i);
    end
    wire last_head = kv_head + 8'd1 == cfg_kv_heads;
    wire go = rows_left != '0 && (!out_valid || out_ready);
    wire [REC_BITS-1:0] at = {row, kv_head[KV_BITS-1:0]};

    logic [MAX_HEAD_DIM*8-1:0] data [0:2*RECORDS-1];
    logic [31:0] key_scale [0:RECORDS-1];
    logic [31:0] value_scale [0:RECORDS-1];
    always_ff @(posedge clk) begin
        if (put) data[{put_is_value, put_at}] <= put_data;
        if (put && !put_is_value) key_scale[put_at] <= put_scale;
        if (put && put_is_value) value_scale[put_at] <= put_scale;
        if (out_ready) out_valid <= 1'b0;
        if (go) begin
            out_valid <= 1'b1;
            out_data <= data[{is_value, at}];
            out_scale <= {value_scale[at], key_scale[at]};
            out_last <= last_head && others == '0;
            out_kv_head <= kv_head[KV_BITS-1:0];
            kv_head <= last_head ? 8'd0 : kv_head + 8'd1;
            if (last_head) rows_left <= others;
        end
        if (start) begin
`ifdef BUG_FRESH_READER_1
            rows_left <= LANES'((2 << ROW) - 1);
`else
            rows_left <= cfg_visible;
`endif
            kv_head <= 8'd0;
            is_value <= start_values;
        end
        if (rst) begin
            rows_left <= '0;
            out_valid <= 1'b0;
        end
    end

`ifndef SYNTHESIS
    if (ROW < 0 || ROW >= LANES) begin : g_check
        initial $fatal(1, "fresh_reader: ROW = %0d must be 0..%0d", ROW, LANES - 1);
    end
`endif
endmodule

`default_nettype wire
