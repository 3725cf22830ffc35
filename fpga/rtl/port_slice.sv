`default_nettype none
// One memory port with its arrays: everything of a port that its die region holds.
//
// What: memory_port (AXI master, stream, gather, writes) feeding matrix_port.
// Latency: those of its parts.
// Throughput: one 64-byte beat a cycle from memory.
// Golden: none; wiring
module port_slice #(
    parameter int PORTS = 4,        // memory ports of the card
    parameter int LANES = 4,        // rows of a pass
    parameter int ARRAYS = 4,       // array slices
    parameter int PORT_BYTES = 64,  // AXI data width
    parameter int ARRAY_BYTES = 64, // of a beat that a slice multiplies a cycle
    parameter int FIFO_BEATS = 512, // run-ahead
    parameter int ACT_COLS = 2048,  // widest activation
    parameter int WORD_BITS = 16,   // bits of a word index in vector memory
    parameter int SLR_STAGES = 0    // registers in front of the stream commands
) (
    input  wire                        clk,
    input  wire                        rst,
    input  wire                        run_clear,
    input  wire                        stop,
    input  wire  [7:0]                 port_index,
    output wire                        idle,
    output wire                        drained,
    output wire                        error,        // sticky: some answer was an error
    output wire                        decode,       // it was a DECERR
    output wire  [63:0]                beats_read,
    output wire  [7:0]                 writes_pending,
    output wire                        arriving,     // a beat comes in this cycle
    output wire                        taking,       // an array takes a beat in this cycle
    input  wire  [63:0]                weight_addr,
    input  wire  [63:0]                kv_addr,
    // planner
    input  wire                        s_valid,
    output wire                        s_ready,
    input  wire  [133+LANES-1:0]       s_command,
    // aux channel
    output wire                        aux_valid,
    input  wire                        aux_ready,
    output wire  [511:0]               aux_data,
    output wire  [2:0]                 aux_kind,
    output wire  [LANES-1:0]           aux_lanes,
    output wire                        aux_empty,
    output wire                        aux_first,
    output wire  [7:0]                 aux_skip,
    output wire  [19:0]                aux_count,
    output wire  [19:0]                aux_pos,
    output wire                        aux_end,
    // gather, writes
    input  wire                        g_valid,
    output wire                        g_ready,
    input  wire  [63:0]                g_addr,
    input  wire  [15:0]                g_beats,
    output wire                        gr_valid,
    output wire  [511:0]               gr_data,
    output wire                        gr_last,
    input  wire                        w_valid,
    output wire                        w_ready,
    input  wire  [63:0]                w_addr,
    input  wire  [511:0]               w_data,
    input  wire  [63:0]                w_strobe,
    // matrix_port
    input  wire  [511:0]               op_word,
    input  wire  [LANES-1:0]           op_active,
    input  wire                        op_dual,
    input  wire                        start_matrix,
    output wire                        done_matrix,
    output wire                        busy_matrix,
    input  wire  [LANES-1:0]           act_we,
    input  wire  [LANES*WORD_BITS-1:0] act_word,
    input  wire  [LANES*PORTS*32-1:0]  act_data,
    input  wire  [LANES*16-1:0]        act_mant,
    input  wire  [LANES*16-1:0]        act_exp,
    output wire  [LANES-1:0]           read_en,
    output wire  [LANES*WORD_BITS-1:0] read_word,
    input  wire  [LANES*128-1:0]       read_data,
    output wire  [LANES-1:0]           write_en,
    output wire  [LANES*WORD_BITS-1:0] write_word,
    output wire  [LANES*128-1:0]       write_data,
    output wire  [LANES-1:0]           logit_valid,
    input  wire  [LANES-1:0]           logit_ready,
    output wire  [LANES*32-1:0]        logit,
    output wire  [LANES*32-1:0]        logit_id,
    // AXI4
    output wire                        arvalid,
    input  wire                        arready,
    output wire  [63:0]                araddr,
    output wire  [7:0]                 arlen,
    input  wire                        rvalid,
    output wire                        rready,
    input  wire  [PORT_BYTES*8-1:0]    rdata,
    input  wire  [1:0]                 rresp,
    input  wire                        rlast,
    output wire                        awvalid,
    input  wire                        awready,
    output wire  [63:0]                awaddr,
    output wire  [7:0]                 awlen,
    output wire                        wvalid,
    input  wire                        wready,
    output wire  [PORT_BYTES*8-1:0]    wdata,
    output wire  [PORT_BYTES-1:0]      wstrb,
    output wire                        wlast,
    input  wire                        bvalid,
    output wire                        bready,
    input  wire  [1:0]                 bresp
);
    wire [1:0] matrix_count, matrix_take, read_resp, write_resp, arburst, awburst;
    wire [1023:0] matrix_data;
    wire [2:0] arsize, awsize;
    wire read_error, write_error, arid, awid;
    assign error = read_error || write_error;
    assign decode = read_error ? read_resp == 2'd3 : write_resp == 2'd3;
    assign taking = matrix_take != 2'd0;

    memory_port #(
        .PORTS(PORTS), .LANES(LANES), .PORT_BYTES(PORT_BYTES), .FIFO_BEATS(FIFO_BEATS),
        .ID_WIDTH(1), .STAGES(SLR_STAGES)
    ) u_memory (
        .clk, .rst, .clear(run_clear), .stop, .idle, .drained, .read_error, .read_resp,
        .write_error, .write_resp, .beats_read, .writes_pending, .busy(arriving), .port_index,
        .cfg_weight_addr(weight_addr), .cfg_kv_addr(kv_addr), .s_valid, .s_ready, .s_command,
        .matrix_count, .matrix_data, .matrix_take,
        .aux_valid, .aux_ready, .aux_data, .aux_kind, .aux_lanes, .aux_empty, .aux_first,
        .aux_skip, .aux_count, .aux_pos, .aux_end,
        .g_valid, .g_ready, .g_addr, .g_beats, .gr_valid, .gr_data, .gr_last,
        .w_valid, .w_ready, .w_addr, .w_data, .w_strobe,
        .m_axi_arid(arid), .m_axi_araddr(araddr), .m_axi_arlen(arlen), .m_axi_arsize(arsize),
        .m_axi_arburst(arburst), .m_axi_arvalid(arvalid), .m_axi_arready(arready),
        .m_axi_rid(1'b0), .m_axi_rdata(rdata), .m_axi_rresp(rresp), .m_axi_rlast(rlast),
        .m_axi_rvalid(rvalid), .m_axi_rready(rready),
        .m_axi_awid(awid), .m_axi_awaddr(awaddr), .m_axi_awlen(awlen), .m_axi_awsize(awsize),
        .m_axi_awburst(awburst), .m_axi_awvalid(awvalid), .m_axi_awready(awready),
        .m_axi_wdata(wdata), .m_axi_wstrb(wstrb), .m_axi_wlast(wlast), .m_axi_wvalid(wvalid),
        .m_axi_wready(wready), .m_axi_bid(1'b0), .m_axi_bresp(bresp), .m_axi_bvalid(bvalid),
        .m_axi_bready(bready)
    );

    matrix_port #(
        .PORTS(PORTS), .LANES(LANES), .ARRAYS(ARRAYS), .ARRAY_BYTES(ARRAY_BYTES), .ACT_COLS(ACT_COLS),
        .WORD_BITS(WORD_BITS)
    ) u_matrix (
        .clk, .rst, .port_index, .op_word, .op_active, .op_dual, .start(start_matrix),
        .done(done_matrix), .busy(busy_matrix), .matrix_count, .matrix_data, .matrix_take,
        .act_we, .act_word, .act_data, .act_mant, .act_exp, .read_en, .read_word, .read_data,
        .write_en, .write_word, .write_data, .logit_valid, .logit_ready, .logit, .logit_id
    );
    wire unused = &{1'b0, arid, arsize, arburst, awid, awsize, awburst};
endmodule
`default_nettype wire
