// Sum, largest or smallest of COUNT signed numbers: a tree of registered two-input nodes.
//
// Latency: ceil(log2(COUNT)) cycles (0 for a single number).
// Throughput: one result a cycle.
// Golden: none; Python's sum, max, min
`default_nettype none

module reduce_tree #(
    parameter int COUNT = 4,  // numbers
    parameter int WIDTH = 32, // bits of a number and of the result
    parameter int OP = 0      // 0 sum (the caller leaves room for it), 1 largest, 2 smallest
) (
    // verilator lint_off UNUSEDSIGNAL
    input  wire                    clk,       // unused for a single number
    input  wire                    rst,
    // verilator lint_on UNUSEDSIGNAL
    input  wire                    in_valid,
    input  wire  [COUNT*WIDTH-1:0] in_data,
    output wire                    out_valid,
    output wire  [WIDTH-1:0]       out_data
);
    localparam int LEVELS = COUNT > 1 ? $clog2(COUNT) : 0;
    localparam int FULL = 1 << LEVELS;

    // node[FULL + i] are the leaves, node[1] is the result; level n starts at node 2^n
    wire [WIDTH-1:0] node [1:2*FULL-1];
    wire [LEVELS:0] valid;
    assign valid[LEVELS] = in_valid;
    assign out_valid = valid[0];
    assign out_data = node[1];

    for (genvar i = 0; i < FULL; i++) begin : g_leaf
        if (i < COUNT) assign node[FULL+i] = in_data[i*WIDTH +: WIDTH];
        else if (OP == 0) assign node[FULL+i] = '0;
        else assign node[FULL+i] = in_data[0 +: WIDTH]; // any of them changes nothing
    end
    for (genvar n = 0; n < LEVELS; n++) begin : g_level
        logic valid_q;
        always_ff @(posedge clk) begin
            valid_q <= valid[n+1];
            if (rst) valid_q <= 1'b0;
        end
        assign valid[n] = valid_q;
        for (genvar i = 0; i < (1 << n); i++) begin : g_node
            wire signed [WIDTH-1:0] a = node[2*((1<<n)+i)];
            wire signed [WIDTH-1:0] b = node[2*((1<<n)+i)+1];
            logic signed [WIDTH-1:0] q;
            always_ff @(posedge clk) if (valid[n+1]) begin
                if (OP == 0) q <= a + b;
                else if (OP == 1) q <= a > b ? a : b;
                else q <= a < b ? a : b;
            end
            assign node[(1<<n)+i] = q;
        end
    end

`ifndef SYNTHESIS
    if (COUNT < 1 || OP < 0 || OP > 2) begin : g_check
        initial $fatal(1, "reduce_tree: COUNT = %0d must be at least 1, OP = %0d must be 0..2", COUNT, OP);
    end
`endif
endmodule

`default_nettype wire
