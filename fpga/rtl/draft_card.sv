`default_nettype none
// The draft accelerator: everything between AXI-Lite control and PORTS AXI4 memory ports.
//
// What: control_regs and control_unit; a port_slice for each memory port, a lane_unit for each row
//   of a pass; attention, embedding, gamma and draw, which all lanes share. See
//   docs/accelerator.md.
// Latency: a token takes about its weight beats of one port in cycles.
// Throughput: one 64-byte beat a cycle and port.
// Golden: fpga/golden/executor.py::GoldenExecutor
module draft_card #(
    parameter int PORTS = 4,            // memory ports: a power of two up to 32
    parameter int PORT_BYTES = 64,      // data width of a memory port: 16, 32, 64
    parameter int LANES = 4,            // rows of a pass: 1, 2, 4, 8
    parameter int ARRAYS = LANES > 2 ? LANES : 2, // array slices of a port; 2 * LANES: two beats a cycle
    parameter int ARRAY_BYTES = 64,     // of a beat that an array slice multiplies a cycle: 16, 32, 64
    parameter int ATTN_HEADS = 3,       // query heads an attention_port works on at once
    parameter int ATTN_BYTES = 64,      // K or V bytes an attention_port takes a cycle
    parameter int FIFO_BEATS = 2048,    // beats a port's stream may run ahead
    parameter int ACT_COLS = 2048,      // widest activation
    parameter int VECTOR_WORDS = 16384, // int32 words of vector memory in each lane
    parameter int MAX_POSITIONS = 4096, // longest context
    parameter int MAX_HEADS = 16,
    parameter int MAX_KV_HEADS = 8,
    parameter int MAX_HEAD_DIM = 128,
    parameter int PROGRAM_INSTRUCTIONS = 512,
    parameter int MAX_READ_TOKENS = 512,
    parameter int MAX_DRAFT_TOKENS = 16,
    parameter int SLR_STAGES = 0,       // register stages of each crossing between dies: 0..3
    parameter logic [127:0] BUILD_HASH = 128'd0,
    parameter int CLOCK_HZ = 300000000
) (
    input  wire                           ap_clk,
    input  wire                           ap_rst_n,
    // verilator lint_off SYMRSVDWORD
    output wire                           interrupt,
    // verilator lint_on SYMRSVDWORD
    // AXI-Lite control
    input  wire                           s_axi_control_awvalid,
    output wire                           s_axi_control_awready,
    input  wire  [11:0]                   s_axi_control_awaddr,
    input  wire                           s_axi_control_wvalid,
    output wire                           s_axi_control_wready,
    input  wire  [31:0]                   s_axi_control_wdata,
    input  wire  [3:0]                    s_axi_control_wstrb,
    output wire                           s_axi_control_bvalid,
    input  wire                           s_axi_control_bready,
    output wire  [1:0]                    s_axi_control_bresp,
    input  wire                           s_axi_control_arvalid,
    output wire                           s_axi_control_arready,
    input  wire  [11:0]                   s_axi_control_araddr,
    output wire                           s_axi_control_rvalid,
    input  wire                           s_axi_control_rready,
    output wire  [31:0]                   s_axi_control_rdata,
    output wire  [1:0]                    s_axi_control_rresp,
    // AXI4 memory ports, port p at [p*width +: width]; incrementing bursts, full width, id 0
    output wire  [PORTS-1:0]              m_axi_arvalid,
    input  wire  [PORTS-1:0]              m_axi_arready,
    output wire  [PORTS*64-1:0]           m_axi_araddr,
    output wire  [PORTS*8-1:0]            m_axi_arlen,
    input  wire  [PORTS-1:0]              m_axi_rvalid,
    output wire  [PORTS-1:0]              m_axi_rready,
    input  wire  [PORTS*PORT_BYTES*8-1:0] m_axi_rdata,
    input  wire  [PORTS*2-1:0]            m_axi_rresp,
    input  wire  [PORTS-1:0]              m_axi_rlast,
    output wire  [PORTS-1:0]              m_axi_awvalid,
    input  wire  [PORTS-1:0]              m_axi_awready,
    output wire  [PORTS*64-1:0]           m_axi_awaddr,
    output wire  [PORTS*8-1:0]            m_axi_awlen,
    output wire  [PORTS-1:0]              m_axi_wvalid,
    input  wire  [PORTS-1:0]              m_axi_wready,
    output wire  [PORTS*PORT_BYTES*8-1:0] m_axi_wdata,
    output wire  [PORTS*PORT_BYTES-1:0]   m_axi_wstrb,
    output wire  [PORTS-1:0]              m_axi_wlast,
    input  wire  [PORTS-1:0]              m_axi_bvalid,
    output wire  [PORTS-1:0]              m_axi_bready,
    input  wire  [PORTS*2-1:0]            m_axi_bresp,
    // utilisation trace: which unit works in this cycle (sim and debug only)
    output wire  [15:0]                   trace_busy,   // bit: see the list in counters.sv
    output wire  [31:0]                   trace_op      // opcode << 24 | instruction index
);
    localparam int WORD_BITS = 16;
    localparam int WIDE = PORTS * 128;              // bits of a vector word

    // ---- control registers
    wire clk = ap_clk;
    wire regs_rst = !ap_rst_n;
    wire core_start, core_done, drain, core_rst;
    wire [63:0] cycles, command_addr, result_addr, program_addr;
    wire [PORTS*64-1:0] weight_addr, kv_addr;
    wire [PORTS-1:0] port_idle, port_drained, port_error, port_decode, arriving, taking;
    logic rst;
    always_ff @(posedge clk) rst <= regs_rst || core_rst;

    control_regs #(
        .PORTS(PORTS), .LANES(LANES), .MAX_READ_TOKENS(MAX_READ_TOKENS),
        .MAX_DRAFT_TOKENS(MAX_DRAFT_TOKENS), .VECTOR_WORDS(VECTOR_WORDS), .CLOCK_HZ(CLOCK_HZ),
        .BUILD_HASH(BUILD_HASH)
    ) u_regs (
        .clk, .rst(regs_rst),
        .awvalid(s_axi_control_awvalid), .awready(s_axi_control_awready),
        .awaddr(s_axi_control_awaddr), .wvalid(s_axi_control_wvalid),
        .wready(s_axi_control_wready), .wdata(s_axi_control_wdata), .wstrb(s_axi_control_wstrb),
        .bvalid(s_axi_control_bvalid), .bready(s_axi_control_bready), .bresp(s_axi_control_bresp),
        .arvalid(s_axi_control_arvalid), .arready(s_axi_control_arready),
        .araddr(s_axi_control_araddr), .rvalid(s_axi_control_rvalid),
        .rready(s_axi_control_rready), .rdata(s_axi_control_rdata), .rresp(s_axi_control_rresp),
        .irq(interrupt), .core_start, .core_done, .cycles, .drain, .drained(port_idle == '1),
        .core_rst, .command_addr, .result_addr, .program_addr, .weight_addr, .kv_addr
    );

    // ---- broadcast
    wire [511:0] op_word;
    wire [LANES-1:0] op_active, done_vector, done_head, done_rope, done_attention;
    wire [PORTS-1:0] done_matrix;
    wire op_dual, op_use_absmax, absmax_clear, done_embed, done_draw;
    wire start_embed, start_vector, start_matrix, start_head, start_rope_row, start_rope;
    wire start_attention, start_draw, run_clear, kv_idle, op_running, fence_wait, running;
    wire [15:0] op_index;
    wire [LANES*LANES-1:0] row_visible;
    wire [LANES*20-1:0] row_position, row_lo;
    wire [LANES*16-1:0] row_tail_slot;
    wire [LANES*32-1:0] row_token, row_output_index, row_choice, row_inv_t;
    wire [LANES*64-1:0] row_seed;
    wire [31:0] cmd_slot_beats, cmd_layer_beats, cmd_k_beats, cmd_v_beats;
    wire draw_valid, draw_ready;
    wire [7:0] draw_row;
    wire [511:0] draw_beat;

    // ---- what runs to and from the ports
    wire [PORTS*64-1:0] port_beats;
    wire [PORTS*8-1:0] writes_pending;
    wire [PORTS-1:0] s_valid, s_ready;
    wire [133+LANES-1:0] s_command;
    wire [PORTS-1:0] g_valid, g_ready, gr_valid, gr_last, embed_g_valid, w_valid, w_ready, kv_w_valid;
    wire [PORTS*64-1:0] g_addr, embed_g_addr, w_addr, w_strobe;
    wire [PORTS*16-1:0] g_beats, embed_g_beats;
    wire [PORTS*512-1:0] gr_data, w_data;
    wire control_g_valid, result_w_valid, busy_embed;
    wire [63:0] control_g_addr, result_w_addr, result_w_strobe, kv_w_addr, kv_w_strobe;
    wire [15:0] control_g_beats;
    wire [511:0] result_w_data, kv_w_data;

    control_unit #(
        .PORTS(PORTS), .LANES(LANES), .ARRAYS(ARRAYS), .VECTOR_WORDS(VECTOR_WORDS),
        .MAX_POSITIONS(MAX_POSITIONS), .PROGRAM_INSTRUCTIONS(PROGRAM_INSTRUCTIONS),
        .MAX_READ_TOKENS(MAX_READ_TOKENS), .MAX_DRAFT_TOKENS(MAX_DRAFT_TOKENS),
        .BUILD_HASH(BUILD_HASH)
    ) u_control (
        .clk, .rst, .ap_start(core_start), .ap_done(core_done), .cycles, .drain, .command_addr,
        .result_addr, .program_addr, .run_clear, .port_idle, .port_drained, .port_error,
        .port_decode, .port_beats, .s_valid, .s_ready, .s_command,
        .g_valid(control_g_valid), .g_ready(g_ready[0] && !busy_embed), .g_addr(control_g_addr),
        .g_beats(control_g_beats), .gr_valid(gr_valid[0] && !busy_embed), .gr_data(gr_data[511:0]),
        .gr_last(gr_last[0]),
        .w_valid(result_w_valid), .w_ready(w_ready[0] && !kv_w_valid[0]), .w_addr(result_w_addr),
        .w_data(result_w_data), .w_strobe(result_w_strobe),
        .result_idle(writes_pending[7:0] == 8'd0), .kv_idle,
        .op_word, .op_active, .op_dual, .op_use_absmax, .absmax_clear, .start_embed, .done_embed,
        .start_vector, .done_vector, .start_matrix, .done_matrix, .start_head, .done_head,
        .start_rope_row, .start_rope, .done_rope, .start_attention, .done_attention, .start_draw,
        .done_draw, .row_visible, .row_position, .row_lo, .row_tail_slot, .row_token,
        .row_output_index, .row_seed, .row_choice, .row_inv_t, .cmd_slot_beats, .cmd_layer_beats,
        .cmd_k_beats, .cmd_v_beats, .draw_valid, .draw_ready, .draw_row, .draw_beat,
        .op_index, .op_running, .fence_wait, .running
    );

    // ---- ports
    wire [PORTS-1:0] aux_valid, aux_ready, aux_empty, aux_first, aux_end, busy_matrix;
    wire [PORTS*512-1:0] aux_data;
    wire [PORTS*3-1:0] aux_kind;
    wire [PORTS*LANES-1:0] aux_lanes;
    wire [PORTS*8-1:0] aux_skip;
    wire [PORTS*20-1:0] aux_count, aux_pos;
    wire [LANES-1:0] act_we;
    wire [LANES*WORD_BITS-1:0] act_word;
    wire [LANES*PORTS*32-1:0] act_data;
    wire [LANES*16-1:0] act_mant, act_exp;
    // [port][lane]
    wire [PORTS*LANES-1:0] dr_en, dw_en, lg_valid, lg_ready;
    wire [PORTS*LANES*WORD_BITS-1:0] dr_word, dw_word;
    wire [PORTS*LANES*128-1:0] dr_data, dw_data;
    wire [PORTS*LANES*32-1:0] lg_logit, lg_id;

    for (genvar p = 0; p < PORTS; p++) begin : g_port
        // the command and the program come through port 0, never while EMBED gathers
        assign g_valid[p] = busy_embed || p != 0 ? embed_g_valid[p] : control_g_valid;
        assign g_addr[p*64 +: 64] = busy_embed || p != 0 ? embed_g_addr[p*64 +: 64] : control_g_addr;
        assign g_beats[p*16 +: 16] =
            busy_embed || p != 0 ? embed_g_beats[p*16 +: 16] : control_g_beats;
        // so goes the result, when no K or V wants to
        assign w_valid[p] = kv_w_valid[p] || (p == 0 && result_w_valid);
        assign w_addr[p*64 +: 64] = p == 0 && !kv_w_valid[p] ? result_w_addr : kv_w_addr;
        assign w_data[p*512 +: 512] = p == 0 && !kv_w_valid[p] ? result_w_data : kv_w_data;
        assign w_strobe[p*64 +: 64] = p == 0 && !kv_w_valid[p] ? result_w_strobe : kv_w_strobe;

        port_slice #(
            .PORTS(PORTS), .LANES(LANES), .ARRAYS(ARRAYS), .PORT_BYTES(PORT_BYTES),
            .ARRAY_BYTES(ARRAY_BYTES), .FIFO_BEATS(FIFO_BEATS), .ACT_COLS(ACT_COLS),
            .WORD_BITS(WORD_BITS), .SLR_STAGES(SLR_STAGES)
        ) u_slice (
            .clk, .rst, .run_clear, .stop(drain), .port_index(8'(p)), .idle(port_idle[p]),
            .drained(port_drained[p]), .error(port_error[p]), .decode(port_decode[p]),
            .beats_read(port_beats[p*64 +: 64]), .writes_pending(writes_pending[p*8 +: 8]),
            .arriving(arriving[p]), .taking(taking[p]),
            .weight_addr(weight_addr[p*64 +: 64]), .kv_addr(kv_addr[p*64 +: 64]),
            .s_valid(s_valid[p]), .s_ready(s_ready[p]), .s_command,
            .aux_valid(aux_valid[p]), .aux_ready(aux_ready[p]), .aux_data(aux_data[p*512 +: 512]),
            .aux_kind(aux_kind[p*3 +: 3]), .aux_lanes(aux_lanes[p*LANES +: LANES]),
            .aux_empty(aux_empty[p]), .aux_first(aux_first[p]), .aux_skip(aux_skip[p*8 +: 8]),
            .aux_count(aux_count[p*20 +: 20]), .aux_pos(aux_pos[p*20 +: 20]), .aux_end(aux_end[p]),
            .g_valid(g_valid[p]), .g_ready(g_ready[p]), .g_addr(g_addr[p*64 +: 64]),
            .g_beats(g_beats[p*16 +: 16]), .gr_valid(gr_valid[p]),
            .gr_data(gr_data[p*512 +: 512]), .gr_last(gr_last[p]),
            .w_valid(w_valid[p]), .w_ready(w_ready[p]), .w_addr(w_addr[p*64 +: 64]),
            .w_data(w_data[p*512 +: 512]), .w_strobe(w_strobe[p*64 +: 64]),
            .op_word, .op_active, .op_dual, .start_matrix, .done_matrix(done_matrix[p]),
            .busy_matrix(busy_matrix[p]), .act_we, .act_word, .act_data, .act_mant, .act_exp,
            .read_en(dr_en[p*LANES +: LANES]),
            .read_word(dr_word[p*LANES*WORD_BITS +: LANES*WORD_BITS]),
            .read_data(dr_data[p*LANES*128 +: LANES*128]),
            .write_en(dw_en[p*LANES +: LANES]),
            .write_word(dw_word[p*LANES*WORD_BITS +: LANES*WORD_BITS]),
            .write_data(dw_data[p*LANES*128 +: LANES*128]),
            .logit_valid(lg_valid[p*LANES +: LANES]), .logit_ready(lg_ready[p*LANES +: LANES]),
            .logit(lg_logit[p*LANES*32 +: LANES*32]), .logit_id(lg_id[p*LANES*32 +: LANES*32]),
            .arvalid(m_axi_arvalid[p]), .arready(m_axi_arready[p]),
            .araddr(m_axi_araddr[p*64 +: 64]), .arlen(m_axi_arlen[p*8 +: 8]),
            .rvalid(m_axi_rvalid[p]), .rready(m_axi_rready[p]),
            .rdata(m_axi_rdata[p*PORT_BYTES*8 +: PORT_BYTES*8]), .rresp(m_axi_rresp[p*2 +: 2]),
            .rlast(m_axi_rlast[p]), .awvalid(m_axi_awvalid[p]), .awready(m_axi_awready[p]),
            .awaddr(m_axi_awaddr[p*64 +: 64]), .awlen(m_axi_awlen[p*8 +: 8]),
            .wvalid(m_axi_wvalid[p]), .wready(m_axi_wready[p]),
            .wdata(m_axi_wdata[p*PORT_BYTES*8 +: PORT_BYTES*8]),
            .wstrb(m_axi_wstrb[p*PORT_BYTES +: PORT_BYTES]), .wlast(m_axi_wlast[p]),
            .bvalid(m_axi_bvalid[p]), .bready(m_axi_bready[p]), .bresp(m_axi_bresp[p*2 +: 2])
        );
    end

    // ---- lanes
    wire [LANES-1:0] absmax_ready, busy_vector, gamma_en, gamma_release, attn_re, attn_we, embed_we;
    wire gamma_ready, all_absmax_ready;
    wire [LANES*WORD_BITS-1:0] gamma_word, attn_read_word, attn_write_word, embed_word;
    wire [PORTS*64-1:0] gamma_data;
    wire [LANES*PORTS-1:0] attn_bank, embed_bank;
    wire [LANES*WIDE-1:0] attn_data, embed_data, lane_read_data;
    wire [LANES*7-1:0] held;
    wire [5:0] rd_index;
    wire [LANES*32-1:0] rd_logit, rd_id;
    assign all_absmax_ready = absmax_ready == '1;

    for (genvar l = 0; l < LANES; l++) begin : g_lane
        wire [PORTS-1:0] r_en, w_en, valid, ready;
        wire [PORTS*WORD_BITS-1:0] r_word, w_word;
        wire [WIDE-1:0] w_data_l;
        wire [PORTS*32-1:0] logits, ids;
        for (genvar p = 0; p < PORTS; p++) begin : g_of_port
            localparam int AT = p * LANES + l;
            assign r_en[p] = dr_en[AT];
            assign r_word[p*WORD_BITS +: WORD_BITS] = dr_word[AT*WORD_BITS +: WORD_BITS];
            assign dr_data[AT*128 +: 128] = lane_read_data[(l*PORTS+p)*128 +: 128];
            assign w_en[p] = dw_en[AT];
            assign w_word[p*WORD_BITS +: WORD_BITS] = dw_word[AT*WORD_BITS +: WORD_BITS];
            assign w_data_l[p*128 +: 128] = dw_data[AT*128 +: 128];
            assign valid[p] = lg_valid[AT];
            assign lg_ready[AT] = ready[p];
            assign logits[p*32 +: 32] = lg_logit[AT*32 +: 32];
            assign ids[p*32 +: 32] = lg_id[AT*32 +: 32];
        end
        lane_unit #(
            .PORTS(PORTS), .VECTOR_WORDS(VECTOR_WORDS), .WORD_BITS(WORD_BITS)
        ) u_lane (
            .clk, .rst, .op_word, .active(op_active[l]), .op_use_absmax, .absmax_clear,
            .start_vector, .done_vector(done_vector[l]), .busy_vector(busy_vector[l]),
            .start_head, .done_head(done_head[l]), .absmax_ready(absmax_ready[l]),
            .all_absmax_ready, .gamma_ready, .gamma_en(gamma_en[l]),
            .gamma_word(gamma_word[l*WORD_BITS +: WORD_BITS]), .gamma_data,
            .gamma_release(gamma_release[l]), .act_we(act_we[l]),
            .act_word(act_word[l*WORD_BITS +: WORD_BITS]),
            .act_data(act_data[l*PORTS*32 +: PORTS*32]), .act_mant(act_mant[l*16 +: 16]),
            .act_exp(act_exp[l*16 +: 16]),
            .drain_read_en(r_en), .drain_read_word(r_word),
            .read_data(lane_read_data[l*WIDE +: WIDE]),
            .drain_write_en(w_en), .drain_write_word(w_word), .drain_write_data(w_data_l),
            .attn_re(attn_re[l]), .attn_read_word(attn_read_word[l*WORD_BITS +: WORD_BITS]),
            .attn_we(attn_we[l]), .attn_write_word(attn_write_word[l*WORD_BITS +: WORD_BITS]),
            .attn_bank(attn_bank[l*PORTS +: PORTS]), .attn_data(attn_data[l*WIDE +: WIDE]),
            .embed_we(embed_we[l]), .embed_word(embed_word[l*WORD_BITS +: WORD_BITS]),
            .embed_bank(embed_bank[l*PORTS +: PORTS]), .embed_data(embed_data[l*WIDE +: WIDE]),
            .logit_valid(valid), .logit_ready(ready), .logit(logits), .logit_id(ids),
            .done_matrix, .held(held[l*7 +: 7]), .rd_index, .rd_logit(rd_logit[l*32 +: 32]),
            .rd_id(rd_id[l*32 +: 32])
        );
    end

    // ---- shared by the lanes
    wire busy_rope, busy_attention;
    wire [PORTS-1:0] attn_aux_ready, gamma_aux_ready, is_gamma;
    for (genvar p = 0; p < PORTS; p++) begin : g_aux
        assign is_gamma[p] = aux_kind[p*3 +: 3] == 3'd2;
        assign aux_ready[p] = is_gamma[p] ? gamma_aux_ready[p] : attn_aux_ready[p];
    end
    gamma_buffer #(
        .PORTS(PORTS), .LANES(LANES), .ACT_COLS(ACT_COLS), .WORD_BITS(WORD_BITS)
    ) u_gamma (
        .clk, .rst, .clear(run_clear), .g_valid(aux_valid & is_gamma), .g_ready(gamma_aux_ready),
        .g_data(aux_data), .g_end(aux_end), .ready(gamma_ready), .read_en(gamma_en),
        .read_word(gamma_word), .read_data(gamma_data), .release_half(gamma_release)
    );

    attention_unit #(
        .PORTS(PORTS), .LANES(LANES), .ATTN_HEADS(ATTN_HEADS), .ATTN_BYTES(ATTN_BYTES),
        .MAX_POSITIONS(MAX_POSITIONS), .MAX_HEADS(MAX_HEADS), .MAX_KV_HEADS(MAX_KV_HEADS),
        .MAX_HEAD_DIM(MAX_HEAD_DIM), .WORD_BITS(WORD_BITS), .MEM_LATENCY(2)
    ) u_attention (
        .clk, .rst, .op_word, .op_active, .start_rope_row, .start_rope, .done_rope,
        .start_attention, .done_attention, .writes_idle(kv_idle), .busy_rope, .busy_attention,
        .row_visible, .row_position, .row_lo, .row_tail_slot,
        .cfg_kv_addr(kv_addr), .cfg_slot_beats(cmd_slot_beats), .cfg_layer_beats(cmd_layer_beats),
        .cfg_k_beats(cmd_k_beats), .cfg_v_beats(cmd_v_beats),
        .aux_valid(aux_valid & ~is_gamma), .aux_ready(attn_aux_ready), .aux_data, .aux_kind,
        .aux_lanes, .aux_empty, .aux_first, .aux_skip, .aux_count, .aux_pos, .aux_end,
        .mem_re(attn_re), .mem_word(attn_read_word), .mem_data(lane_read_data),
        .vw_we(attn_we), .vw_word(attn_write_word), .vw_bank(attn_bank), .vw_data(attn_data),
        .w_valid(kv_w_valid), .w_ready, .w_addr(kv_w_addr), .w_data(kv_w_data),
        .w_strobe(kv_w_strobe), .writes_pending
    );

    embed_unit #(
        .PORTS(PORTS), .LANES(LANES), .ACT_COLS(ACT_COLS), .WORD_BITS(WORD_BITS)
    ) u_embed (
        .clk, .rst, .op_word, .active(op_active), .start(start_embed), .done(done_embed),
        .busy(busy_embed), .token(row_token), .weight_addr, .g_valid(embed_g_valid), .g_ready,
        .g_addr(embed_g_addr), .g_beats(embed_g_beats), .gr_valid, .gr_data, .gr_last,
        .w_en(embed_we), .w_mask(embed_bank), .w_word(embed_word), .w_data(embed_data)
    );

    draw_unit #(.LANES(LANES)) u_draw (
        .clk, .rst, .start(start_draw), .active(op_active), .logit_frac(op_word[37:32]),
        .lane_seed(row_seed), .lane_output_index(row_output_index), .lane_choice(row_choice),
        .lane_inv_t(row_inv_t), .held, .rd_index, .rd_logit, .rd_id,
        .out_valid(draw_valid), .out_ready(draw_ready), .out_lane(draw_row), .out_beat(draw_beat),
        .done(done_draw)
    );

    // ---- what works when
    logic drawing;
    wire [15:0] units;
    wire [511:0] counts;
    always_ff @(posedge clk) drawing <= !rst && (start_draw || (drawing && !done_draw));
    assign units = {
        3'd0, busy_matrix != '0 && taking == '0, running, fence_wait, running && !op_running,
        drawing, busy_embed, busy_attention, busy_rope, busy_vector != '0, busy_matrix != '0,
        taking != '0, arriving == '1, arriving != '0
    };
    counters #(.UNITS(16)) u_counters (
        .clk, .clear(run_clear), .busy(units), .trace(trace_busy), .counts
    );
    assign trace_op = {op_word[7:0], 8'd0, op_index};
    wire unused = &{1'b0, counts};
`ifndef SYNTHESIS
    if (ARRAY_BYTES != 16 && ARRAY_BYTES != 32 && ARRAY_BYTES != 64) begin : g_check_array
        initial $fatal(1, "draft_card: ARRAY_BYTES = %0d must be 16, 32 or 64", ARRAY_BYTES);
    end
    if (LANES != 1 && LANES != 2 && LANES != 4 && LANES != 8) begin : g_check_lanes
        initial $fatal(1, "draft_card: LANES = %0d must be 1, 2, 4 or 8", LANES);
    end
    if (PORTS < 1 || PORTS > 32 || (PORTS & (PORTS - 1)) != 0) begin : g_check_ports
        initial $fatal(1, "draft_card: PORTS = %0d must be a power of two up to 32", PORTS);
    end
`endif
endmodule
`default_nettype wire
