// Sum, largest or smallest of COUNT signed numbers: a tree of registered two-input nodes.
//
// What: ELEMS numbers lie side by side and are reduced each for itself.
// Latency: ceil(log2(COUNT)) cycles (0 for a single number).
// Throughput: one result a cycle.
// Golden: none; Python's sum, max, min
`default_nettype none

module reduce_tree #(
    parameter int COUNT = 4,  // numbers
    parameter int WIDTH = 32, // bits of a number and of the result
    parameter int OP = 0,     // 0 sum (the caller leaves room for it), 1 largest, 2 smallest
    parameter int ELEMS = 1   // independent numbers side by side
) (
    // verilator lint_off UNUSEDSIGNAL
    input  wire                          clk,       // unused for a single number
    input  wire                          rst,
    // verilator lint_on UNUSEDSIGNAL
    input  wire                          in_valid,
    input  wire  [COUNT*ELEMS*WIDTH-1:0] in_data,   // [number][element]
    output wire                          out_valid,
    output wire  [ELEMS*WIDTH-1:0]       out_data
);
    localparam int LEVELS = COUNT > 1 ? $clog2(COUNT) : 0;
    localparam int BITS = ELEMS * WIDTH;

    function automatic logic [WIDTH-1:0] node(input logic signed [WIDTH-1:0] a_i,
                                              input logic signed [WIDTH-1:0] b_i);
        if (OP == 0) node = a_i + b_i;
        else if (OP == 1) node = a_i > b_i ? a_i : b_i;
        else node = a_i < b_i ? a_i : b_i;
    endfunction

    if (LEVELS == 0) begin : g_wire
        assign out_valid = in_valid;
        assign out_data = in_data;
    end else begin : g_tree
        logic [LEVELS-1:0] valid;
        always_ff @(posedge clk) begin
            valid <= LEVELS'({valid, in_valid});
            if (rst) valid <= '0;
        end
        assign out_valid = valid[LEVELS-1];
        // node i of level n comes of nodes 2i and 2i + 1 of the level before; an odd last one passes
        for (genvar n = 0; n < LEVELS; n++) begin : g_level
            localparam int BEFORE = (COUNT + (1 << n) - 1) >> n;
            wire go = n == 0 ? in_valid : valid[n > 0 ? n - 1 : 0];
            for (genvar i = 0; i < (BEFORE + 1) / 2; i++) begin : g_node
                for (genvar e = 0; e < ELEMS; e++) begin : g_elem
                    logic signed [WIDTH-1:0] q;
                    if (n == 0 && 2 * i + 1 < BEFORE) begin : g_do
                        always_ff @(posedge clk) if (go)
                            q <= node(in_data[2*i*BITS+e*WIDTH +: WIDTH],
                                in_data[(2*i+1)*BITS+e*WIDTH +: WIDTH]);
                    end else if (n == 0) begin : g_do
                        always_ff @(posedge clk) if (go) q <= in_data[2*i*BITS+e*WIDTH +: WIDTH];
                    end else if (2 * i + 1 < BEFORE) begin : g_do
                        always_ff @(posedge clk) if (go)
                            q <= node(g_level[n-1].g_node[2*i].g_elem[e].q,
                                g_level[n-1].g_node[2*i+1].g_elem[e].q);
                    end else begin : g_do
                        always_ff @(posedge clk) if (go) q <= g_level[n-1].g_node[2*i].g_elem[e].q;
                    end
                end
            end
        end
        for (genvar e = 0; e < ELEMS; e++) begin : g_out
            assign out_data[e*WIDTH +: WIDTH] = g_level[LEVELS-1].g_node[0].g_elem[e].q;
        end
    end

`ifndef SYNTHESIS
    if (COUNT < 1 || OP < 0 || OP > 2) begin : g_check
        initial $fatal(1, "reduce_tree: COUNT = %0d must be at least 1, OP = %0d must be 0..2", COUNT, OP);
    end
`endif
endmodule

`default_nettype wire
