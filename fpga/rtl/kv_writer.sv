// AXI4 write master of a memory port: one 64-byte beat with byte strobes for each request.
//
// What:       Each request is one INCR burst of 64 / PORT_BYTES beats. Requests not yet acknowledged
//             are counted in `pending`; whoever needs a write to be visible waits for 0.
// Latency:    1 cycle from request to AW and W.
// Throughput: one request in 64 / PORT_BYTES cycles. w_ready depends on awready and wready.
// Golden:     none; memory holds what was asked for.
`default_nettype none

module kv_writer #(
    parameter int PORT_BYTES = 64,  // AXI data width in bytes: 16, 32, 64
    parameter int MAX_PENDING = 64, // requests in flight, a power of two
    parameter int ID_WIDTH = 1      // AXI ID bits; one id (0) is used
) (
    input  wire                           clk,
    input  wire                           rst,
    input  wire                           clear,      // forget errors
    input  wire                           stop,       // level: take no further request
    output logic [$clog2(MAX_PENDING):0]  pending,    // requests accepted and not acknowledged
    output logic                          error,      // sticky: SLVERR or DECERR
    output logic [1:0]                    error_resp, // its BRESP (the first one's)
    input  wire                           w_valid,
    output logic                          w_ready,
    input  wire  [63:0]                   w_addr,     // byte address, a multiple of 64
    input  wire  [511:0]                  w_data,
    input  wire  [63:0]                   w_strobe,   // a bit for each byte
    // AXI4 write channels
    output logic [ID_WIDTH-1:0]           m_axi_awid,
    output logic [63:0]                   m_axi_awaddr,
    output logic [7:0]                    m_axi_awlen,
    output logic [2:0]                    m_axi_awsize,
    output logic [1:0]                    m_axi_awburst,
    output logic                          m_axi_awvalid,
    input  wire                           m_axi_awready,
    output logic [PORT_BYTES*8-1:0]       m_axi_wdata,
    output logic [PORT_BYTES-1:0]         m_axi_wstrb,
    output logic                          m_axi_wlast,
    output logic                          m_axi_wvalid,
    input  wire                           m_axi_wready,
    input  wire  [ID_WIDTH-1:0]           m_axi_bid,
    input  wire  [1:0]                    m_axi_bresp,
    input  wire                           m_axi_bvalid,
    output logic                          m_axi_bready
);
  localparam int PARTS = 64 / PORT_BYTES;
  localparam int PORT_BITS = PORT_BYTES * 8;
  localparam int COUNT_BITS = $clog2(MAX_PENDING) + 1;

  logic [511:0] data_left;   // what W still has to send, the next part in the low end
  logic [63:0]  strobe_left;
  logic [2:0]   part;

  wire full = pending[COUNT_BITS-1];
  wire aw_free = !m_axi_awvalid || m_axi_awready;
  wire w_free = !m_axi_wvalid || (m_axi_wready && m_axi_wlast);
  wire accept = w_valid && w_ready;
  wire answered = m_axi_bvalid && m_axi_bready;

  assign w_ready       = aw_free && w_free && !full && !stop;
  assign m_axi_awid    = '0;
  assign m_axi_awlen   = 8'(PARTS - 1);
  assign m_axi_awsize  = 3'($clog2(PORT_BYTES));
  assign m_axi_awburst = 2'b01;
  assign m_axi_wdata   = data_left[PORT_BITS-1:0];
  assign m_axi_wstrb   = strobe_left[PORT_BYTES-1:0];
  assign m_axi_wlast   = part == 3'(PARTS - 1);
  assign m_axi_bready  = 1'b1;

  always_ff @(posedge clk) begin
    if (accept) begin
      m_axi_awaddr <= w_addr;
      data_left    <= w_data;
      strobe_left  <= w_strobe;
    end else if (m_axi_wvalid && m_axi_wready) begin
      data_left   <= data_left >> PORT_BITS;
`ifndef BUG_KV_WRITER_1
      strobe_left <= strobe_left >> PORT_BYTES;
`endif
    end
    if (rst) begin
      m_axi_awvalid <= 1'b0;
      m_axi_wvalid  <= 1'b0;
      part          <= 3'd0;
      pending       <= '0;
    end else begin
      if (aw_free) m_axi_awvalid <= accept;
      if (w_free) m_axi_wvalid <= accept;
      if (m_axi_wvalid && m_axi_wready) part <= m_axi_wlast ? 3'd0 : part + 3'd1;
`ifdef BUG_KV_WRITER_2
      pending <= pending + COUNT_BITS'(accept) - COUNT_BITS'(m_axi_wvalid && m_axi_wready && m_axi_wlast);
`else
      pending <= pending + COUNT_BITS'(accept) - COUNT_BITS'(answered);
`endif
    end
    if (rst || clear) begin
      error      <= 1'b0;
      error_resp <= 2'd0;
    end else if (answered && m_axi_bresp[1] && !error) begin
      error      <= 1'b1;
      error_resp <= m_axi_bresp;
    end
  end

  // verilator lint_off UNUSED
  wire unused = |m_axi_bid;
  // verilator lint_on UNUSED

`ifdef HETERO_ASSERT
  always_ff @(posedge clk) begin
    if (!rst) assert (!answered || pending != '0) else $fatal(1, "kv_writer: answer without a request");
  end
`endif
`ifndef SYNTHESIS
  if (PORT_BYTES != 16 && PORT_BYTES != 32 && PORT_BYTES != 64) begin : g_check_port
    initial $fatal(1, "kv_writer: PORT_BYTES = %0d must be 16, 32 or 64", PORT_BYTES);
  end
  if (MAX_PENDING < 2 || MAX_PENDING > 64 || (MAX_PENDING & (MAX_PENDING - 1)) != 0)
  begin : g_check_pending
    initial $fatal(1, "kv_writer: MAX_PENDING = %0d must be a power of two, 2..64", MAX_PENDING);
  end
`endif
endmodule

`default_nettype wire
