// AXI4 read master of a memory port: commands to bursts, answers to beats.
//
// What:       Cuts read commands into aligned INCR bursts, issues them as long as the beat FIFO has
//             room for all of them (credits), and routes what comes back, gathered into 64-byte
//             beats, to the beat FIFO or to the answer of a gather. Gathers go first, between bursts.
//             Everything answered is drained, errors too; the first error is kept.
// Latency:    2 cycles from command to AR, 1 from R to write_valid / gr_valid.
// Throughput: one AR a cycle, one R beat a cycle.
// Golden:     none; memory's content comes out in the order of the commands.
`default_nettype none

module port_reader #(
    parameter int PORT_BYTES = 64,    // AXI data width in bytes: 16, 32, 64
    parameter int FIFO_BEATS = 512,   // capacity of the beat FIFO, credits
    parameter int BURST_BYTES = 1024, // longest burst, a power of two, 64..4096
    parameter int AXI3 = 1,           // 1: never more than 16 beats in a burst (HBM), 0: up to 256
    parameter int OUTSTANDING = 64,   // bursts in flight, a power of two
    parameter int ID_WIDTH = 1        // AXI ID bits; one id (0) is used
) (
    input  wire                     clk,
    input  wire                     rst,
    input  wire                     clear,      // only when idle: forget commands, counters, errors
    input  wire                     stop,       // issue nothing more
    output logic                    idle,       // nothing in flight and no AR waiting
    output logic                    error,      // sticky: a beat came with SLVERR or DECERR
    output logic [1:0]              error_resp, // its RRESP (the first one's)
    output logic [63:0]             beats_read, // 64-byte beats received since clear, gathers included
    // commands of the stream
    input  wire                     cmd_valid,
    output logic                    cmd_ready,
    input  wire  [63:0]             cmd_addr,   // byte address, a multiple of 64
    input  wire  [31:0]             cmd_beats,  // 64-byte beats, not 0
    // to the beat FIFO
    output logic                    write_valid,
    output logic [511:0]            write_data,
    input  wire  [1:0]              taken,      // beats taken from the FIFO in this cycle: credits back
    // gathers: answered past the FIFO, without back-pressure
    input  wire                     g_valid,
    output logic                    g_ready,
    input  wire  [63:0]             g_addr,     // byte address, a multiple of 64
    input  wire  [15:0]             g_beats,    // 64-byte beats, not 0
    output logic                    gr_valid,
    output logic [511:0]            gr_data,
    output logic                    gr_last,    // last beat of the request
    // AXI4 read channels
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
    output logic                    m_axi_rready
);
  localparam int PARTS = 64 / PORT_BYTES;  // AXI beats in a 64-byte beat
  localparam int LIMIT_BYTES = PORT_BYTES * (AXI3 != 0 ? 16 : 256);
  localparam int BURST_BEATS = (BURST_BYTES < LIMIT_BYTES ? BURST_BYTES : LIMIT_BYTES) / 64;
  localparam int CREDIT_BITS = $clog2(FIFO_BEATS) + 1;
  localparam int FLIGHT_BITS = $clog2(OUTSTANDING) + 1;
  localparam int PORT_BITS = PORT_BYTES * 8;

  // ---- bursts
  wire        stream_valid;
  wire [63:0] stream_addr;
  wire [6:0]  stream_beats;
  wire        gather_valid;
  wire [63:0] gather_addr;
  wire [6:0]  gather_beats;
  wire        gather_final;
  wire        stream_final;

  // ---- issue
  logic [CREDIT_BITS-1:0] credits;  // beats of the FIFO that nobody has asked for
  wire                    tag_room;
  wire                    tag_gather;
  wire                    tag_final;
  wire [FLIGHT_BITS-1:0]  in_flight;
  wire                    tag_valid;

  wire ar_free = !m_axi_arvalid || m_axi_arready;
  wire may_issue = ar_free && tag_room && !stop && !clear;
`ifdef BUG_PORT_READER_1
  wire has_credit = 1'b1;
`else
  wire has_credit = credits >= CREDIT_BITS'(BURST_BEATS);
`endif
  wire issue_gather = may_issue && gather_valid;
  wire issue_stream = may_issue && stream_valid && has_credit && !gather_valid;
  wire [6:0] issue_beats = gather_valid ? gather_beats : stream_beats;

  burst_splitter #(
      .BURST_BEATS(BURST_BEATS)
  ) u_stream (
      .clk        (clk),
      .rst        (rst || clear),
      .cmd_valid  (cmd_valid),
      .cmd_ready  (cmd_ready),
      .cmd_addr   (cmd_addr),
      .cmd_beats  (cmd_beats),
      .burst_valid(stream_valid),
      .burst_ready(issue_stream),
      .burst_addr (stream_addr),
      .burst_beats(stream_beats),
      .burst_final(stream_final)
  );

  burst_splitter #(
      .BURST_BEATS(BURST_BEATS)
  ) u_gather (
      .clk        (clk),
      .rst        (rst || clear),
      .cmd_valid  (g_valid),
      .cmd_ready  (g_ready),
      .cmd_addr   (g_addr),
      .cmd_beats  ({16'd0, g_beats}),
      .burst_valid(gather_valid),
      .burst_ready(issue_gather),
      .burst_addr (gather_addr),
      .burst_beats(gather_beats),
      .burst_final(gather_final)
  );

  always_ff @(posedge clk) begin
    if (issue_gather || issue_stream) begin
      m_axi_araddr <= gather_valid ? gather_addr : stream_addr;
      m_axi_arlen  <= 8'(9'(issue_beats) * 9'(PARTS) - 9'd1);
    end
    if (rst) begin
      m_axi_arvalid <= 1'b0;
      credits       <= CREDIT_BITS'(FIFO_BEATS);
    end else begin
      if (ar_free) m_axi_arvalid <= issue_gather || issue_stream;
      if (clear) credits <= CREDIT_BITS'(FIFO_BEATS);
      else
        credits <= credits + CREDIT_BITS'(taken)
                   - (issue_stream ? CREDIT_BITS'(stream_beats) : CREDIT_BITS'(0));
    end
  end

  assign m_axi_arid    = '0;
  assign m_axi_arsize  = 3'($clog2(PORT_BYTES));
  assign m_axi_arburst = 2'b01;

  // ---- whose burst comes back: one tag for each burst in flight (one id, so answers are in order)
  stream_fifo #(
      .WIDTH(2),
      .DEPTH(OUTSTANDING)
  ) u_tags (
      .clk      (clk),
      .rst      (rst),
      .clear    (1'b0),
      .in_valid (issue_gather || issue_stream),
      .in_ready (tag_room),
      .in_data  ({gather_valid, gather_valid && gather_final}),
      .out_valid(tag_valid),
      .out_ready(m_axi_rvalid && m_axi_rlast),
      .out_data ({tag_gather, tag_final}),
      .level    (in_flight)
  );

  assign idle = in_flight == '0;  // a tag lies there from before AR is seen until the last R

  // ---- answers: always taken, gathered into 64-byte beats
  logic [2:0] part;  // AXI beats of the present 64-byte beat that are there
  wire        whole = part == 3'(PARTS - 1);

  assign m_axi_rready = 1'b1;
  assign gr_data      = write_data;

  always_ff @(posedge clk) begin
    if (rst) begin
      part        <= 3'd0;
      write_valid <= 1'b0;
      gr_valid    <= 1'b0;
      gr_last     <= 1'b0;
    end else begin
      if (m_axi_rvalid) part <= whole ? 3'd0 : part + 3'd1;
      write_valid <= m_axi_rvalid && whole && !tag_gather;
      gr_valid    <= m_axi_rvalid && whole && tag_gather;
      gr_last     <= m_axi_rvalid && whole && tag_final && m_axi_rlast;
    end
  end

  for (genvar i = 0; i < PARTS; i++) begin : g_part
    always_ff @(posedge clk) begin
      if (m_axi_rvalid && part == 3'(i)) write_data[i*PORT_BITS+:PORT_BITS] <= m_axi_rdata;
    end
  end

  always_ff @(posedge clk) begin
    if (rst || clear) begin
      error      <= 1'b0;
      error_resp <= 2'd0;
      beats_read <= 64'd0;
    end else begin
      if (m_axi_rvalid && m_axi_rresp[1] && !error) begin
        error      <= 1'b1;
        error_resp <= m_axi_rresp;
      end
      if (m_axi_rvalid && whole) beats_read <= beats_read + 64'd1;
    end
  end

  // verilator lint_off UNUSED
  wire unused = |m_axi_rid | tag_valid | stream_final;
  // verilator lint_on UNUSED

`ifdef HETERO_ASSERT
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert (!m_axi_rvalid || tag_valid) else $fatal(1, "port_reader: answer without a request");
      assert (!clear || idle) else $fatal(1, "port_reader: clear with reads in flight");
      assert (32'(credits) <= FIFO_BEATS) else $fatal(1, "port_reader: credits run over");
    end
  end
`endif
`ifdef HETERO_COVER
  logic [31:0] cov_credit_wait;   // a burst waited for room in the FIFO
  logic [31:0] cov_tag_wait;      // a burst waited because OUTSTANDING were in flight
  logic [31:0] cov_gather_first;  // a gather went before a waiting burst of the stream
  always_ff @(posedge clk) begin
    if (rst) begin
      cov_credit_wait  <= 32'd0;
      cov_tag_wait     <= 32'd0;
      cov_gather_first <= 32'd0;
    end else begin
      if (stream_valid && may_issue && !has_credit) cov_credit_wait <= cov_credit_wait + 32'd1;
      if (stream_valid && ar_free && !tag_room) cov_tag_wait <= cov_tag_wait + 32'd1;
      if (issue_gather && stream_valid) cov_gather_first <= cov_gather_first + 32'd1;
    end
  end
`endif
`ifndef SYNTHESIS
  if (PORT_BYTES != 16 && PORT_BYTES != 32 && PORT_BYTES != 64) begin : g_check_port
    initial $fatal(1, "port_reader: PORT_BYTES = %0d must be 16, 32 or 64", PORT_BYTES);
  end
  if (BURST_BYTES < 64 || BURST_BYTES > 4096 || (BURST_BYTES & (BURST_BYTES - 1)) != 0)
  begin : g_check_burst
    initial $fatal(1, "port_reader: BURST_BYTES = %0d must be a power of two, 64..4096", BURST_BYTES);
  end
  if (FIFO_BEATS < 2 * BURST_BEATS) begin : g_check_fifo
    initial
      $fatal(1, "port_reader: FIFO_BEATS = %0d must be two bursts (%0d) or more", FIFO_BEATS,
             2 * BURST_BEATS);
  end
`endif
endmodule

`default_nettype wire
