// Keys and values made in this pass: kept for its own attention, and written to card memory.
//
// What: Takes the key and value records of all rows and hands them to every lane's fresh_reader.
//   Once they are all there, records and scales of all rows go, one request each, to the port that
//   owns the row's position, while the sequencer goes on.
// Latency: 1 cycle from taking a record to `put`.
// Throughput: one record a cycle; 3 cycles and its wait a write request.
// Golden: fpga/golden/kv_cache.py::KvCache (the layout it writes)
`default_nettype none

module fresh_kv #(
    parameter int PORTS = 4,         // memory ports: 1, 2, 4 .. 32
    parameter int LANES = 1,         // rows of a pass
    parameter int MAX_HEAD_DIM = 64, // 32, 64, 128
    parameter int KV_BITS = 3,       // bits of a kv head
    parameter int REC_BITS = 4       // bits of {row, kv head}
) (
    input  wire                        clk,
    input  wire                        rst,
    // a ROPE_KV begins: what it says and the rows are stable until its records are here
    input  wire                        start,
    input  wire  [LANES-1:0]           active,
    input  wire  [15:0]                cfg_layer,
    input  wire  [7:0]                 cfg_kv_heads,
    input  wire  [2:0]                 cfg_size,       // head_dim / 32: 1, 2, 4
    input  wire  [LANES*20-1:0]        row_position,
    input  wire  [LANES*16-1:0]        row_tail_slot,
    input  wire  [PORTS*64-1:0]        cfg_kv_addr,
    input  wire  [31:0]                cfg_slot_beats,
    input  wire  [31:0]                cfg_layer_beats,
    input  wire  [31:0]                cfg_k_beats,
    input  wire  [31:0]                cfg_v_beats,
    // records of all lanes; a lane's is taken when in_ready is up
    input  wire  [LANES-1:0]           in_valid,
    output wire  [LANES-1:0]           in_ready,
    input  wire  [LANES-1:0]           in_is_value,
    input  wire  [LANES*KV_BITS-1:0]   in_kv_head,
    input  wire  [LANES*MAX_HEAD_DIM*8-1:0] in_data,
    input  wire  [LANES*32-1:0]        in_scale,       // mantissa | exponent << 16
    // to every lane's fresh_reader: a record to keep
    output logic                       put,
    output logic                       put_is_value,
    output logic [REC_BITS-1:0]        put_at,         // {row, kv head}
    output logic [MAX_HEAD_DIM*8-1:0]  put_data,
    output logic [31:0]                put_scale,
    // write requests: one-hot valid; ready of the port meant
    output logic [PORTS-1:0]           w_valid,
    input  wire  [PORTS-1:0]           w_ready,
    output logic [63:0]                w_addr,
    output logic [511:0]               w_data,
    output logic [63:0]                w_strobe,
    output wire                        idle            // no write is waiting
);
    localparam int ROW_BITS = LANES > 1 ? $clog2(LANES) : 1;
    localparam int RECORDS = 1 << REC_BITS;
    localparam int DATA_BITS = MAX_HEAD_DIM * 8;
    localparam int PORT_BITS = PORTS > 1 ? $clog2(PORTS) : 1;
    localparam int PORT_SHIFT = $clog2(PORTS);
    localparam [3:0] S_IDLE = 4'd0, S_FILL = 4'd1, S_ROW = 4'd2, S_MULTIPLY = 4'd3, S_ADD = 4'd4,
        S_READ = 4'd5, S_FORM = 4'd6, S_SEND = 4'd7, S_SETTLE = 4'd8;
    localparam int SETTLE_CYCLES = 8; // until a kv_writer behind slr_stages counts its last request

    // ------------------------------------------------------------------ taking records
    logic [3:0] state;
    logic [9:0] records_left;
    wire [LANES-1:0] lowest = in_valid & (~in_valid + LANES'(1));
    assign in_ready = state == S_FILL ? lowest : '0;
    wire put_now = state == S_FILL && in_valid != '0;
    logic [ROW_BITS-1:0] from;
    always_comb begin
        from = '0;
        for (int i = LANES - 1; i >= 0; i--) if (in_valid[i]) from = ROW_BITS'(i);
    end
    always_ff @(posedge clk) begin
        put <= put_now;
        if (put_now) begin
            put_is_value <= in_is_value[from];
            put_at <= {from, in_kv_head[from*KV_BITS +: KV_BITS]};
            put_data <= in_data[from*DATA_BITS +: DATA_BITS];
            put_scale <= in_scale[from*32 +: 32];
        end
        if (rst) put <= 1'b0;
    end

    // ------------------------------------------------------------------ writes
    logic armed;
    // kept, for the writes go on while the sequencer does
    logic [15:0] layer;
    logic [7:0] kv_heads;
    logic [2:0] size;
    logic [LANES*20-1:0] positions;
    logic [LANES*16-1:0] tail_slots;
    logic [LANES-1:0] rows;      // still to be written
    logic [7:0] head;
    logic [2:0] part;            // 0, 1 key record, 2, 3 value record, 4 scales
    logic [3:0] settle;
    logic [ROW_BITS-1:0] row;
    logic [PORT_BITS-1:0] port;
    logic [47:0] slot_offset, layer_offset; // beats
    logic [63:0] row_base;       // byte address of this slot and layer on the port
    logic [27:0] record;         // position / PORTS * kv_heads + head
    assign idle = state == S_IDLE && !armed;

    always_comb begin
        row = '0;
        for (int i = LANES - 1; i >= 0; i--) if (rows[i]) row = ROW_BITS'(i);
    end
    wire [19:0] position = positions[row*20 +: 20];
    wire [PORT_BITS-1:0] owner = PORTS > 1 ? position[PORT_BITS-1:0] : '0;
    wire two_beats = size[2];
    wire last_part = part == 3'd4;
    wire last_record = head + 8'd1 == kv_heads;
    wire last_row = (rows & (rows - LANES'(1))) == '0;

    // the copy that the writes come from
    logic [DATA_BITS-1:0] data [0:2*RECORDS-1];
    logic [31:0] key_scale [0:RECORDS-1];
    logic [31:0] value_scale [0:RECORDS-1];
    logic [DATA_BITS-1:0] record_data;
    logic [63:0] record_scale;
    wire [REC_BITS-1:0] at = {row, head[KV_BITS-1:0]};
    always_ff @(posedge clk) begin
        if (put) data[{put_is_value, put_at}] <= put_data;
        if (put && !put_is_value) key_scale[put_at] <= put_scale;
        if (put && put_is_value) value_scale[put_at] <= put_scale;
        if (state == S_READ) begin
            record_data <= data[{part[1], at}];
            record_scale <= {value_scale[at], key_scale[at]};
        end
    end

    // byte offset of this part in the layer
    wire [31:0] region = part[2] ? 32'd0 : part[1] ? cfg_v_beats : cfg_k_beats;
    wire [34:0] data_offset = two_beats ? {record, part[0], 6'd0}
        : size[1] ? {1'b0, record, 6'd0} : {2'b0, record, 5'd0};
    // verilator lint_off UNUSEDSIGNAL
    wire [34:0] offset = part[2] ? {4'd0, record, 3'd0} : data_offset;
    // verilator lint_on UNUSEDSIGNAL
    function automatic logic [63:0] bytes(input logic [2:0] word_i);
        bytes = part[2] ? 64'hff << {word_i, 3'd0} : !size[0] ? '1
            : word_i[2] ? {32'hffffffff, 32'd0} : {32'd0, 32'hffffffff};
    endfunction

    localparam int UPPER = DATA_BITS > 512 ? 512 : 0; // the second beat of a record
    localparam int BEAT_BITS = DATA_BITS > 512 ? 512 : DATA_BITS;
    logic [3:0] num_active;
    always_comb begin
        num_active = 4'd0;
        for (int i = 0; i < LANES; i++) num_active = num_active + 4'(active[i]);
    end
    always_ff @(posedge clk) begin
        if (start && active != '0) armed <= 1'b1;
        if (put_now) records_left <= records_left - 10'd1;
        case (state)
            S_IDLE: if (armed) begin
                armed <= 1'b0;
                rows <= active;
                records_left <= 10'(num_active) * {1'b0, cfg_kv_heads, 1'b0};
                layer <= cfg_layer;
                kv_heads <= cfg_kv_heads;
                size <= cfg_size;
                positions <= row_position;
                tail_slots <= row_tail_slot;
                state <= S_FILL;
            end
            S_FILL: if (records_left == 10'd0) state <= S_ROW;
            S_ROW: begin
                port <= owner;
                slot_offset <= 48'(tail_slots[row*16 +: 16]) * 48'(cfg_slot_beats);
                layer_offset <= 48'(layer) * 48'(cfg_layer_beats);
                record <= 28'(position[19:PORT_SHIFT]) * 28'(kv_heads);
                head <= 8'd0;
                part <= 3'd0;
                state <= S_MULTIPLY;
            end
            S_MULTIPLY: begin
                slot_offset <= slot_offset + layer_offset;
                state <= S_ADD;
            end
            S_ADD: begin
                row_base <= cfg_kv_addr[port*64 +: 64] + {10'd0, slot_offset, 6'd0};
                state <= S_READ;
            end
            S_READ: state <= S_FORM;
            S_FORM: begin
                w_addr <= row_base + {26'd0, region, 6'd0} + {29'd0, offset[34:6], 6'd0};
                if (part[2]) w_data <= {8{record_scale}};
                else if (size[0]) w_data <= {2{record_data[255:0]}};
                else if (part[0]) w_data <= 512'(record_data[UPPER +: BEAT_BITS]);
                else w_data <= 512'(record_data[0 +: BEAT_BITS]);
                w_strobe <= bytes(offset[5:3]);
                w_valid <= PORTS'(1) << port;
                state <= S_SEND;
            end
            S_SEND: if ((w_valid & w_ready) != '0) begin
                w_valid <= '0;
                part <= last_part ? 3'd0 : two_beats || part[0] ? part + 3'd1 : part + 3'd2;
                state <= S_READ;
                if (last_part) begin
                    head <= head + 8'd1;
                    record <= record + 28'd1;
                    if (last_record) begin
                        rows <= rows & (rows - LANES'(1));
                        state <= last_row ? S_SETTLE : S_ROW;
                        settle <= 4'(SETTLE_CYCLES);
                    end
                end
            end
            default: begin
                settle <= settle - 4'd1;
                if (settle == 4'd0) state <= S_IDLE;
            end
        endcase
        if (rst) begin
            state <= S_IDLE;
            armed <= 1'b0;
            w_valid <= '0;
        end
    end
endmodule

`default_nettype wire
