// The run-ahead buffer of a memory port: 64-byte beats, written one a cycle, read up to two a cycle.
//
// What:       Two banks, beats of even and of odd number. The read side shows the next two beats
//             (the older one in the low half) and takes 0, 1 or 2 of them in each cycle.
//             There is no back-pressure at the write side: port_reader never asks for more than fits.
// Latency:    4 cycles from write to read.
// Throughput: one beat in and two beats out in each cycle.
// Golden:     none; beats come out as they went in.
`default_nettype none

module beat_fifo #(
    parameter int FIFO_BEATS = 512  // capacity in 64-byte beats, a power of two, 16 or more
) (
    input  wire                         clk,
    input  wire                         rst,
    input  wire                         clear,       // forget everything (nothing may be in flight)
    input  wire                         write_valid, // no ready: the writer holds credits
    input  wire  [511:0]                write_data,
    output logic [1:0]                  count,       // 0, 1, 2 = two or more beats to see
    output logic [1023:0]               data,        // the next beat in the low half
    input  wire  [1:0]                  take,        // beats taken in this cycle, <= count
    output logic [$clog2(FIFO_BEATS):0] free         // beats that still fit (registered)
);
  localparam int LEVEL_BITS = $clog2(FIFO_BEATS) + 1;

  logic       write_odd;  // the next beat written goes to the odd bank
  logic       read_odd;   // the next beat read comes from there
  wire        valid_even;
  wire        valid_odd;
  wire [511:0] data_even;
  wire [511:0] data_odd;

  wire first_valid = read_odd ? valid_odd : valid_even;
  wire both_valid = valid_odd && valid_even;
`ifdef BUG_BEAT_FIFO_1
  wire take_even = take[1] || (take[0] && read_odd);
  wire take_odd = take[1] || (take[0] && !read_odd);
`else
  wire take_even = take[1] || (take[0] && !read_odd);
  wire take_odd = take[1] || (take[0] && read_odd);
`endif

  assign count = both_valid ? 2'd2 : {1'b0, first_valid};
  assign data  = read_odd ? {data_even, data_odd} : {data_odd, data_even};

  beat_bank #(
      .DEPTH(FIFO_BEATS / 2)
  ) u_even (
      .clk        (clk),
      .rst        (rst || clear),
      .write_valid(write_valid && !write_odd),
      .write_data (write_data),
      .valid      (valid_even),
      .data       (data_even),
      .take       (take_even)
  );

  beat_bank #(
      .DEPTH(FIFO_BEATS / 2)
  ) u_odd (
      .clk        (clk),
      .rst        (rst || clear),
      .write_valid(write_valid && write_odd),
      .write_data (write_data),
      .valid      (valid_odd),
      .data       (data_odd),
      .take       (take_odd)
  );

  always_ff @(posedge clk) begin
    if (rst || clear) begin
      write_odd <= 1'b0;
      read_odd  <= 1'b0;
      free      <= LEVEL_BITS'(FIFO_BEATS);
    end else begin
      if (write_valid) write_odd <= !write_odd;
      if (take[0]) read_odd <= !read_odd;
      free <= free - LEVEL_BITS'(write_valid) + LEVEL_BITS'(take);
    end
  end

`ifdef HETERO_ASSERT
  always_ff @(posedge clk) begin
    if (!rst && !clear) begin
      assert (take <= count) else $fatal(1, "beat_fifo: took %0d of %0d beats", take, count);
      assert (!(write_valid && free == '0)) else $fatal(1, "beat_fifo: overflow");
    end
  end
`endif
`ifdef HETERO_COVER
  logic [31:0] cov_full;
  logic [31:0] cov_empty;
  always_ff @(posedge clk) begin
    if (rst) begin
      cov_full  <= 32'd0;
      cov_empty <= 32'd0;
    end else begin
      if (free == '0) cov_full <= cov_full + 32'd1;
      if (count == 2'd0) cov_empty <= cov_empty + 32'd1;
    end
  end
`endif
`ifndef SYNTHESIS
  if (FIFO_BEATS < 16 || (FIFO_BEATS & (FIFO_BEATS - 1)) != 0) begin : g_check
    initial $fatal(1, "beat_fifo: FIFO_BEATS = %0d must be a power of two, 16 or more", FIFO_BEATS);
  end
`endif
endmodule

`default_nettype wire
