// Everything between one memory port (AXI4) and its consumers: the integrator takes this, one a port.
//
// What:       port_planner, port_reader, beat_fifo, stream_dispatch and kv_writer, wired.
// Latency:    about 13 cycles from stream command to AR; memory; 6 from R to a channel.
// Throughput: one beat a cycle from memory, two a cycle to the matrix channel.
// Golden:     tests/support/stream_model.py
//
// Abort: raise `stop`, wait for `idle`, pulse `clear` (together with read_planner's).
`default_nettype none

module memory_port #(
    parameter int PORTS = 1,          // memory ports of the card: 1, 2, 4 .. 32
    parameter int LANES = 1,          // lanes: 1, 2, 4, 8
    parameter int PORT_BYTES = 64,    // AXI data width in bytes: 16, 32, 64
    parameter int FIFO_BEATS = 512,   // run-ahead in 64-byte beats, a power of two
    parameter int BURST_BYTES = 1024, // longest read burst, a power of two, 64..4096
    parameter int AXI3 = 1,           // 1: never more than 16 beats in a burst (HBM)
    parameter int OUTSTANDING = 64,   // read bursts in flight, a power of two
    parameter int TAGS = 64,          // stream commands ahead, a power of two
    parameter int ID_WIDTH = 1,       // AXI ID bits; one id (0) is used
    parameter int STAGES = 0          // slr_stage registers in front of the stream commands, 0..3
) (
    input  wire                     clk,
    input  wire                     rst,
    input  wire                     clear,           // only when idle: forget commands, counters, errors
    input  wire                     stop,            // issue no more reads
    output logic                    idle,            // nothing in flight on AXI (reads and writes)
    output logic                    drained,         // no command, tag or beat is left either
    output logic                    read_error,      // sticky until clear
    output logic [1:0]              read_resp,
    output logic                    write_error,     // sticky until clear
    output logic [1:0]              write_resp,
    output logic [63:0]             beats_read,      // 64-byte beats since clear, gathers included
    output logic [7:0]              writes_pending,
    output logic                    busy,            // a beat arrives in this cycle (utilisation)
    input  wire  [7:0]              port_index,      // constant
    input  wire  [63:0]             cfg_weight_addr,
    input  wire  [63:0]             cfg_kv_addr,
    // from read_planner
    input  wire                     s_valid,
    output logic                    s_ready,
    input  wire  [133+LANES-1:0]    s_command,
    // matrix channel (see stream_dispatch)
    output logic [1:0]              matrix_count,
    output logic [1023:0]           matrix_data,
    input  wire  [1:0]              matrix_take,
    // aux channel (see stream_dispatch)
    output logic                    aux_valid,
    input  wire                     aux_ready,
    output logic [511:0]            aux_data,
    output logic [2:0]              aux_kind,
    output logic [LANES-1:0]        aux_lanes,
    output logic                    aux_empty,
    output logic                    aux_first,
    output logic [7:0]              aux_skip,
    output logic [19:0]             aux_count,
    output logic [19:0]             aux_pos,
    output logic                    aux_end,
    // gather (see port_reader)
    input  wire                     g_valid,
    output logic                    g_ready,
    input  wire  [63:0]             g_addr,
    input  wire  [15:0]             g_beats,
    output logic                    gr_valid,
    output logic [511:0]            gr_data,
    output logic                    gr_last,
    // writes (see kv_writer)
    input  wire                     w_valid,
    output logic                    w_ready,
    input  wire  [63:0]             w_addr,
    input  wire  [511:0]            w_data,
    input  wire  [63:0]             w_strobe,
    // AXI4
    output logic [ID_WIDTH-1:0]     m_axi_arid,
    output logic [63:0]             m_axi_araddr,
    output logic [7:0]              m_axi_arlen,
    output logic [2:0]              m_axi_arsize,
    output logic [1:0]              m_axi_arburst,
    output logic                    m_axi_arvalid,
    input  wire                     m_axi_arready,
    input  wire  [ID_WIDTH-1:0]     m_axi_rid,
    input  wire  [PORT_BYTES*8-1:0] m_axi_rdata,
    input  wire  [1:0]              m_axi_rresp,
    input  wire                     m_axi_rlast,
    input  wire                     m_axi_rvalid,
    output logic                    m_axi_rready,
    output logic [ID_WIDTH-1:0]     m_axi_awid,
    output logic [63:0]             m_axi_awaddr,
    output logic [7:0]              m_axi_awlen,
    output logic [2:0]              m_axi_awsize,
    output logic [1:0]              m_axi_awburst,
    output logic                    m_axi_awvalid,
    input  wire                     m_axi_awready,
    output logic [PORT_BYTES*8-1:0] m_axi_wdata,
    output logic [PORT_BYTES-1:0]   m_axi_wstrb,
    output logic                    m_axi_wlast,
    output logic                    m_axi_wvalid,
    input  wire                     m_axi_wready,
    input  wire  [ID_WIDTH-1:0]     m_axi_bid,
    input  wire  [1:0]              m_axi_bresp,
    input  wire                     m_axi_bvalid,
    output logic                    m_axi_bready
);
  wire                   staged_valid;
  wire                   staged_ready;
  wire [133+LANES-1:0]   staged;
  wire                   cmd_valid;
  wire                   cmd_ready;
  wire [63:0]            cmd_addr;
  wire [31:0]            cmd_beats;
  wire                   tag_valid;
  wire                   tag_ready;
  wire [85+LANES-1:0]    tag;
  wire                   planner_idle;
  wire                   reader_idle;
  wire                   dispatch_idle;
  wire                   write_valid;
  wire [511:0]           write_data;
  wire [1:0]             fifo_count;
  wire [1023:0]          fifo_data;
  wire [1:0]             fifo_take;
  wire [$clog2(FIFO_BEATS):0] fifo_free;
  wire [6:0]             pending;

  assign writes_pending = {1'b0, pending};
  assign idle           = reader_idle && pending == 7'd0;
  assign drained        = idle && planner_idle && dispatch_idle && !staged_valid && !write_valid
                          && fifo_free[$clog2(FIFO_BEATS)];
  assign busy           = m_axi_rvalid && m_axi_rready;

  slr_stage #(
      .WIDTH (133 + LANES),
      .STAGES(STAGES)
  ) u_stage (
      .clk      (clk),
      .rst      (rst || clear),
      .in_valid (s_valid),
      .in_ready (s_ready),
      .in_data  (s_command),
      .out_valid(staged_valid),
      .out_ready(staged_ready),
      .out_data (staged)
  );

  port_planner #(
      .PORTS(PORTS),
      .LANES(LANES),
      .TAGS (TAGS)
  ) u_planner (
      .clk            (clk),
      .rst            (rst),
      .clear          (clear),
      .port_index     (port_index),
      .cfg_weight_addr(cfg_weight_addr),
      .cfg_kv_addr    (cfg_kv_addr),
      .s_valid        (staged_valid),
      .s_ready        (staged_ready),
      .s_command      (staged),
      .cmd_valid      (cmd_valid),
      .cmd_ready      (cmd_ready),
      .cmd_addr       (cmd_addr),
      .cmd_beats      (cmd_beats),
      .tag_valid      (tag_valid),
      .tag_ready      (tag_ready),
      .tag            (tag),
      .idle           (planner_idle)
  );

  port_reader #(
      .PORT_BYTES (PORT_BYTES),
      .FIFO_BEATS (FIFO_BEATS),
      .BURST_BYTES(BURST_BYTES),
      .AXI3       (AXI3),
      .OUTSTANDING(OUTSTANDING),
      .ID_WIDTH   (ID_WIDTH)
  ) u_reader (
      .clk          (clk),
      .rst          (rst),
      .clear        (clear),
      .stop         (stop),
      .idle         (reader_idle),
      .error        (read_error),
      .error_resp   (read_resp),
      .beats_read   (beats_read),
      .cmd_valid    (cmd_valid),
      .cmd_ready    (cmd_ready),
      .cmd_addr     (cmd_addr),
      .cmd_beats    (cmd_beats),
      .write_valid  (write_valid),
      .write_data   (write_data),
      .taken        (fifo_take),
      .g_valid      (g_valid),
      .g_ready      (g_ready),
      .g_addr       (g_addr),
      .g_beats      (g_beats),
      .gr_valid     (gr_valid),
      .gr_data      (gr_data),
      .gr_last      (gr_last),
      .m_axi_arid   (m_axi_arid),
      .m_axi_araddr (m_axi_araddr),
      .m_axi_arlen  (m_axi_arlen),
      .m_axi_arsize (m_axi_arsize),
      .m_axi_arburst(m_axi_arburst),
      .m_axi_arvalid(m_axi_arvalid),
      .m_axi_arready(m_axi_arready),
      .m_axi_rid    (m_axi_rid),
      .m_axi_rdata  (m_axi_rdata),
      .m_axi_rresp  (m_axi_rresp),
      .m_axi_rlast  (m_axi_rlast),
      .m_axi_rvalid (m_axi_rvalid),
      .m_axi_rready (m_axi_rready)
  );

  beat_fifo #(
      .FIFO_BEATS(FIFO_BEATS)
  ) u_fifo (
      .clk        (clk),
      .rst        (rst),
      .clear      (clear),
      .write_valid(write_valid),
      .write_data (write_data),
      .count      (fifo_count),
      .data       (fifo_data),
      .take       (fifo_take),
      .free       (fifo_free)
  );

  stream_dispatch #(
      .LANES(LANES)
  ) u_dispatch (
      .clk         (clk),
      .rst         (rst),
      .clear       (clear),
      .tag_valid   (tag_valid),
      .tag_ready   (tag_ready),
      .tag         (tag),
      .idle        (dispatch_idle),
      .fifo_count  (fifo_count),
      .fifo_data   (fifo_data),
      .fifo_take   (fifo_take),
      .matrix_count(matrix_count),
      .matrix_data (matrix_data),
      .matrix_take (matrix_take),
      .aux_valid   (aux_valid),
      .aux_ready   (aux_ready),
      .aux_data    (aux_data),
      .aux_kind    (aux_kind),
      .aux_lanes   (aux_lanes),
      .aux_empty   (aux_empty),
      .aux_first   (aux_first),
      .aux_skip    (aux_skip),
      .aux_count   (aux_count),
      .aux_pos     (aux_pos),
      .aux_end     (aux_end)
  );

  kv_writer #(
      .PORT_BYTES (PORT_BYTES),
      .MAX_PENDING(64),
      .ID_WIDTH   (ID_WIDTH)
  ) u_writer (
      .clk          (clk),
      .rst          (rst),
      .clear        (clear),
      .stop         (stop),
      .pending      (pending),
      .error        (write_error),
      .error_resp   (write_resp),
      .w_valid      (w_valid),
      .w_ready      (w_ready),
      .w_addr       (w_addr),
      .w_data       (w_data),
      .w_strobe     (w_strobe),
      .m_axi_awid   (m_axi_awid),
      .m_axi_awaddr (m_axi_awaddr),
      .m_axi_awlen  (m_axi_awlen),
      .m_axi_awsize (m_axi_awsize),
      .m_axi_awburst(m_axi_awburst),
      .m_axi_awvalid(m_axi_awvalid),
      .m_axi_awready(m_axi_awready),
      .m_axi_wdata  (m_axi_wdata),
      .m_axi_wstrb  (m_axi_wstrb),
      .m_axi_wlast  (m_axi_wlast),
      .m_axi_wvalid (m_axi_wvalid),
      .m_axi_wready (m_axi_wready),
      .m_axi_bid    (m_axi_bid),
      .m_axi_bresp  (m_axi_bresp),
      .m_axi_bvalid (m_axi_bvalid),
      .m_axi_bready (m_axi_bready)
  );
endmodule

`default_nettype wire
