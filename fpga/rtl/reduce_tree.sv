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
    localparam int FULL = 1 << LEVELS;
    localparam int BITS = ELEMS * WIDTH;

    // a missing partner changes nothing: 0 for a sum, the number itself otherwise
    function automatic logic [FULL*BITS-1:0] filled(input logic [COUNT*BITS-1:0] x_i);
        for (int i = 0; i < FULL; i++)
            filled[i*BITS +: BITS] = i < COUNT ? x_i[(i < COUNT ? i : 0)*BITS +: BITS]
                : OP == 0 ? '0 : x_i[0 +: BITS];
    endfunction

    function automatic logic [WIDTH-1:0] node(input logic signed [WIDTH-1:0] a_i,
                                              input logic signed [WIDTH-1:0] b_i);
        if (OP == 0) node = a_i + b_i;
        else if (OP == 1) node = a_i > b_i ? a_i : b_i;
        else node = a_i < b_i ? a_i : b_i;
    endfunction

    // the lower half of the result; a function, so that a simulator works out only what is registered
    function automatic logic [FULL*BITS-1:0] halved(input logic [FULL*BITS-1:0] x_i,
                                                    input int pairs_i);
        halved = '0;
        for (int i = 0; i < FULL / 2; i++)
            if (i < pairs_i)
                for (int e = 0; e < ELEMS; e++)
                    halved[(i*ELEMS+e)*WIDTH +: WIDTH] = node(
                        x_i[(2*i*ELEMS+e)*WIDTH +: WIDTH], x_i[((2*i+1)*ELEMS+e)*WIDTH +: WIDTH]);
    endfunction

    if (LEVELS == 0) begin : g_wire
        assign out_valid = in_valid;
        assign out_data = in_data;
    end else begin : g_tree
        logic [FULL*BITS-1:0] level [0:LEVELS-1]; // after each level; the last one has the result
        logic [LEVELS-1:0] valid;
        always_ff @(posedge clk) begin
            if (in_valid) level[0] <= halved(filled(in_data), FULL / 2);
            for (int n = 1; n < LEVELS; n++)
                if (valid[n-1]) level[n] <= halved(level[n-1], FULL >> (n + 1));
            valid <= LEVELS'({valid, in_valid});
            if (rst) valid <= '0;
        end
        assign out_valid = valid[LEVELS-1];
        assign out_data = level[LEVELS-1][BITS-1:0];
    end

`ifndef SYNTHESIS
    if (COUNT < 1 || OP < 0 || OP > 2) begin : g_check
        initial $fatal(1, "reduce_tree: COUNT = %0d must be at least 1, OP = %0d must be 0..2", COUNT, OP);
    end
`endif
endmodule

`default_nettype wire
