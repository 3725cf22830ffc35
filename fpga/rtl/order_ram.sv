// Carries what belongs to a value past a pipeline of fixed order: pushed at its entry, popped at its end.
//
// What:       A circular memory without flags. DEPTH must be larger than what is ever in flight.
// Latency: out_data is valid from one cycle after the push.
// Throughput: one a cycle.
// Golden: none; first in, first out
`default_nettype none

module order_ram #(
    parameter int WIDTH = 32, // bits of an item
    parameter int DEPTH = 32  // items, a power of two
) (
    input  wire              clk,
    input  wire              rst,
    input  wire              push,
    input  wire  [WIDTH-1:0] in_data,
    input  wire              pop,
    output wire  [WIDTH-1:0] out_data  // the oldest item
);
    localparam int BITS = $clog2(DEPTH);

    logic [WIDTH-1:0] mem [0:DEPTH-1];
    logic [BITS-1:0] head, tail;
    assign out_data = mem[head];

    always_ff @(posedge clk) begin
        if (push) mem[tail] <= in_data;
        if (push) tail <= tail + BITS'(1);
        if (pop) head <= head + BITS'(1);
        if (rst) {head, tail} <= '0;
    end

`ifdef HETERO_ASSERT
    logic [BITS:0] level;
    always @(posedge clk) begin
        level <= rst ? '0 : level + (BITS+1)'(push) - (BITS+1)'(pop);
        assert (rst || !(pop && level == '0)) else $fatal(1, "order_ram: empty");
        assert (rst || !(push && !pop && level == (BITS+1)'(DEPTH))) else $fatal(1, "order_ram: full");
    end
`endif
`ifndef SYNTHESIS
    if (DEPTH < 2 || (DEPTH & (DEPTH - 1)) != 0) begin : g_check
        initial $fatal(1, "order_ram: DEPTH = %0d must be a power of two", DEPTH);
    end
`endif
endmodule

`default_nettype wire
