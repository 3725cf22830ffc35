// Half of a beat FIFO: block memory behind a short queue that shows the next beat at once.
//
// What:       The memory is read ahead into a queue of 8 beats, whose room is claimed when a read is
//             issued; so no path leads from `take` to the memory, whose output register is used.
// Latency:    4 cycles from write to valid.
// Throughput: one beat in and one beat out in each cycle.
// Golden:     none; beats come out as they went in.
`default_nettype none

module beat_bank #(
    parameter int DEPTH = 256  // beats the memory holds, a power of two
) (
    input  wire          clk,
    input  wire          rst,
    input  wire          write_valid,
    input  wire  [511:0] write_data,
    output logic         valid,
    output logic [511:0] data,
    input  wire          take
);
  localparam int ADDR_BITS = $clog2(DEPTH);

  (* ram_style = "block" *) logic [511:0] mem [0:DEPTH-1];
  (* ram_style = "distributed" *) logic [511:0] queue [0:7];
  logic [ADDR_BITS:0] write_at;  // one bit more than the address: full and empty differ
  logic [ADDR_BITS:0] read_at;
  logic [511:0]       latched;   // memory output, then its output register
  logic [511:0]       fetched;
  logic               latched_valid;
  logic               fetched_valid;
  logic [2:0]         queue_in;
  logic [2:0]         queue_out;
  logic [3:0]         claimed;   // beats in the queue or on the way to it
  logic [3:0]         queued;

  wire issue = write_at != read_at && !claimed[3];

  assign valid = queued != 4'd0;
  assign data  = queue[queue_out];

  always_ff @(posedge clk) begin
    if (write_valid) mem[write_at[ADDR_BITS-1:0]] <= write_data;
    if (issue) latched <= mem[read_at[ADDR_BITS-1:0]];
    if (latched_valid) fetched <= latched;
    if (fetched_valid) queue[queue_in] <= fetched;
  end

  always_ff @(posedge clk) begin
    if (rst) begin
      write_at      <= '0;
      read_at       <= '0;
      latched_valid <= 1'b0;
      fetched_valid <= 1'b0;
      queue_in      <= 3'd0;
      queue_out     <= 3'd0;
      claimed       <= 4'd0;
      queued        <= 4'd0;
    end else begin
      latched_valid <= issue;
      fetched_valid <= latched_valid;
      if (write_valid) write_at <= write_at + 1'b1;
      if (issue) read_at <= read_at + 1'b1;
      if (fetched_valid) queue_in <= queue_in + 1'b1;
      if (take) queue_out <= queue_out + 1'b1;
      claimed <= claimed + {3'd0, issue} - {3'd0, take};
      queued  <= queued + {3'd0, fetched_valid} - {3'd0, take};
    end
  end
endmodule

`default_nettype wire
