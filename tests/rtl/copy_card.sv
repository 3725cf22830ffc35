`default_nettype none
// A stand-in for draft_card with the same ports, to test what is around the card: each port copies
// beats in memory. Registers: 0x000 control (1 start, 2 done), 0x010 from, 0x018 to, 0x020 bursts,
// 0x024 beats a burst, 0x028 bytes between the ports' areas, 0x340 cycles from start to the last
// beat read, 0x344 worst read response, 0x348 worst write response.
module copy_card #(
    parameter int PORTS = 2,
    parameter int PORT_BYTES = 64
) (
    input  wire                           ap_clk,
    input  wire                           ap_rst_n,
    output wire                           interrupt,
    input  wire                           s_axi_control_awvalid,
    output wire                           s_axi_control_awready,
    input  wire  [11:0]                   s_axi_control_awaddr,
    input  wire                           s_axi_control_wvalid,
    output wire                           s_axi_control_wready,
    input  wire  [31:0]                   s_axi_control_wdata,
    input  wire  [3:0]                    s_axi_control_wstrb,
    output logic                          s_axi_control_bvalid,
    input  wire                           s_axi_control_bready,
    output wire  [1:0]                    s_axi_control_bresp,
    input  wire                           s_axi_control_arvalid,
    output wire                           s_axi_control_arready,
    input  wire  [11:0]                   s_axi_control_araddr,
    output logic                          s_axi_control_rvalid,
    input  wire                           s_axi_control_rready,
    output logic [31:0]                   s_axi_control_rdata,
    output wire  [1:0]                    s_axi_control_rresp,
    output logic [PORTS-1:0]              m_axi_arvalid,
    input  wire  [PORTS-1:0]              m_axi_arready,
    output logic [PORTS*64-1:0]           m_axi_araddr,
    output logic [PORTS*8-1:0]            m_axi_arlen,
    input  wire  [PORTS-1:0]              m_axi_rvalid,
    output wire  [PORTS-1:0]              m_axi_rready,
    input  wire  [PORTS*PORT_BYTES*8-1:0] m_axi_rdata,
    input  wire  [PORTS*2-1:0]            m_axi_rresp,
    input  wire  [PORTS-1:0]              m_axi_rlast,
    output logic [PORTS-1:0]              m_axi_awvalid,
    input  wire  [PORTS-1:0]              m_axi_awready,
    output logic [PORTS*64-1:0]           m_axi_awaddr,
    output logic [PORTS*8-1:0]            m_axi_awlen,
    output logic [PORTS-1:0]              m_axi_wvalid,
    input  wire  [PORTS-1:0]              m_axi_wready,
    output logic [PORTS*PORT_BYTES*8-1:0] m_axi_wdata,
    output logic [PORTS*PORT_BYTES-1:0]   m_axi_wstrb,
    output logic [PORTS-1:0]              m_axi_wlast,
    input  wire  [PORTS-1:0]              m_axi_bvalid,
    output wire  [PORTS-1:0]              m_axi_bready,
    input  wire  [PORTS*2-1:0]            m_axi_bresp,
    output wire  [15:0]                   trace_busy,
    output wire  [31:0]                   trace_op
);
    localparam int DEPTH = 1024;  // beats that one start may copy

    logic [31:0] regs [0:15];
    logic        start, done, running;
    logic [31:0] cycles;
    logic [PORTS-1:0] read_done, write_done;
    logic [PORTS*2-1:0] worst_r, worst_b;
    logic [1:0] worst_read, worst_write;

    assign interrupt = done;
    assign trace_busy = {15'd0, running};
    assign trace_op = cycles;
    assign s_axi_control_bresp = 2'd0;
    assign s_axi_control_rresp = 2'd0;
    wire write_now = s_axi_control_awvalid && s_axi_control_wvalid && !s_axi_control_bvalid;
    assign s_axi_control_awready = write_now;
    assign s_axi_control_wready = write_now;
    assign s_axi_control_arready = !s_axi_control_rvalid;

    always_ff @(posedge ap_clk) begin
        start <= 1'b0;
        if (s_axi_control_bready) s_axi_control_bvalid <= 1'b0;
        if (s_axi_control_rready) s_axi_control_rvalid <= 1'b0;
        if (write_now) begin
            s_axi_control_bvalid <= 1'b1;
            if (s_axi_control_awaddr == 12'h000) start <= s_axi_control_wdata[0];
            else regs[s_axi_control_awaddr[5:2]] <= s_axi_control_wdata;
        end
        if (s_axi_control_arvalid && s_axi_control_arready) begin
            s_axi_control_rvalid <= 1'b1;
            case (s_axi_control_araddr)
                12'h000: s_axi_control_rdata <= {30'd0, done, running};
                12'h340: s_axi_control_rdata <= cycles;
                12'h344: s_axi_control_rdata <= {30'd0, worst_read};
                12'h348: s_axi_control_rdata <= {30'd0, worst_write};
                default: s_axi_control_rdata <= regs[s_axi_control_araddr[5:2]];
            endcase
        end
        if (start) begin
            running <= 1'b1;
            done <= 1'b0;
            cycles <= 32'd0;
        end else if (running) begin
            if (!(&read_done)) cycles <= cycles + 32'd1;
            if (&write_done) begin
                running <= 1'b0;
                done <= 1'b1;
            end
        end
        if (!ap_rst_n) begin
            s_axi_control_bvalid <= 1'b0;
            s_axi_control_rvalid <= 1'b0;
            running <= 1'b0;
            done <= 1'b0;
        end
    end

    always_comb begin
        worst_read = 2'd0;
        worst_write = 2'd0;
        for (int i = 0; i < PORTS; i++) begin
            if (worst_r[2*i +: 2] > worst_read) worst_read = worst_r[2*i +: 2];
            if (worst_b[2*i +: 2] > worst_write) worst_write = worst_b[2*i +: 2];
        end
    end

    for (genvar p = 0; p < PORTS; p++) begin : g_port
        logic [PORT_BYTES*8-1:0] mem [0:DEPTH-1];
        logic [31:0] asked, got, sent_aw, sent_w, answered;
        wire [31:0] bursts = regs[8];
        wire [31:0] len = regs[9];
        wire [31:0] total = bursts * len;
        wire [63:0] area = 64'(regs[10]) * 64'(p);
        assign m_axi_rready[p] = 1'b1;
        assign m_axi_bready[p] = 1'b1;
        assign read_done[p] = got == total;
        assign write_done[p] = answered == bursts && !start;
`ifdef HETERO_COVER
        logic [31:0] cov_read_waits;  // cycles in which a read was not taken
        always_ff @(posedge ap_clk)
            if (!ap_rst_n) cov_read_waits <= 32'd0;
            else if (m_axi_arvalid[p] && !m_axi_arready[p]) cov_read_waits <= cov_read_waits + 32'd1;
`endif
`ifdef HETERO_ASSERT
        always_ff @(posedge ap_clk)
            if (ap_rst_n && start && bursts > 32'd512) $fatal(1, "copy_card: too many bursts");
`endif
        always_ff @(posedge ap_clk) begin
            if (m_axi_arready[p]) m_axi_arvalid[p] <= 1'b0;
            if (m_axi_awready[p]) m_axi_awvalid[p] <= 1'b0;
            if (m_axi_wready[p]) m_axi_wvalid[p] <= 1'b0;
            if (running && (!m_axi_arvalid[p] || m_axi_arready[p]) && asked != bursts) begin
                m_axi_arvalid[p] <= 1'b1;
                m_axi_araddr[64*p +: 64] <= {regs[5], regs[4]} + area + 64'(asked * len * 32'(PORT_BYTES));
                m_axi_arlen[8*p +: 8] <= 8'(len - 1);
                asked <= asked + 32'd1;
            end
            if (m_axi_rvalid[p]) begin
                mem[got[$clog2(DEPTH)-1:0]] <= m_axi_rdata[PORT_BYTES*8*p +: PORT_BYTES*8];
                got <= got + 32'd1;
                if (m_axi_rresp[2*p +: 2] > worst_r[2*p +: 2]) worst_r[2*p +: 2] <= m_axi_rresp[2*p +: 2];
            end
            if (running && read_done[p]) begin
                if ((!m_axi_awvalid[p] || m_axi_awready[p]) && sent_aw != bursts) begin
                    m_axi_awvalid[p] <= 1'b1;
                    m_axi_awaddr[64*p +: 64] <= {regs[7], regs[6]} + area + 64'(sent_aw * len * 32'(PORT_BYTES));
                    m_axi_awlen[8*p +: 8] <= 8'(len - 1);
                    sent_aw <= sent_aw + 32'd1;
                end
                if ((!m_axi_wvalid[p] || m_axi_wready[p]) && sent_w != total) begin
                    m_axi_wvalid[p] <= 1'b1;
                    m_axi_wdata[PORT_BYTES*8*p +: PORT_BYTES*8] <= mem[sent_w[$clog2(DEPTH)-1:0]];
                    // The first byte of every beat is left as it was.
                    m_axi_wstrb[PORT_BYTES*p +: PORT_BYTES] <= {{(PORT_BYTES-1){1'b1}}, 1'b0};
                    m_axi_wlast[p] <= (sent_w + 1) % len == 0;
                    sent_w <= sent_w + 32'd1;
                end
            end
            if (m_axi_bvalid[p]) begin
                answered <= answered + 32'd1;
                if (m_axi_bresp[2*p +: 2] > worst_b[2*p +: 2]) worst_b[2*p +: 2] <= m_axi_bresp[2*p +: 2];
            end
            if (!ap_rst_n || start) begin
                asked <= 32'd0;
                got <= 32'd0;
                sent_aw <= 32'd0;
                sent_w <= 32'd0;
                answered <= 32'd0;
                worst_r[2*p +: 2] <= 2'd0;
                worst_b[2*p +: 2] <= 2'd0;
                m_axi_arvalid[p] <= 1'b0;
                m_axi_awvalid[p] <= 1'b0;
                m_axi_wvalid[p] <= 1'b0;
            end
        end
    end
endmodule
`default_nettype wire
