// The vector instructions of one lane: NORM_QUANT, QUANT and SILU_GATE.
//
// What:       Reads vectors from lane_memory a word of 4 * PORTS elements a cycle. QUANT: one pass,
//             or two when the largest magnitude is not known yet. NORM_QUANT: one pass for the sum of
//             squares and max |x * gamma|, one that quantises; the root works beside the second.
//             SILU_GATE writes its result back. Lanes started together with the same absmax_ready
//             and gamma_ready run in lock step.
// Latency: SILU_GATE words + 17, QUANT words + 20, NORM_QUANT 2 * words + 37 + log2(4 * PORTS)
//             cycles from start to done, without waiting for absmax or gamma.
// Throughput: one word a cycle in each pass.
// Golden: fpga/golden/norm.py::norm_quant, fpga/golden/quantise.py::quantise,
//             fpga/golden/silu_gate.py::silu_gate
`default_nettype none
`include "isa.svh"

module lane_vector #(
    parameter int PORTS = 4,     // a word has 4 * PORTS elements
    parameter int WORD_BITS = 16 // bits of a word index in vector memory
) (
    input  wire                     clk,
    input  wire                     rst,
    // sequencer
    input  wire  [511:0]            op_word,       // linked instruction, stable until done
    input  wire                     op_use_absmax, // `absmax` covers exactly the input vector
    input  wire                     active,        // for this lane; else start is ignored
    input  wire                     start,         // pulse
    output logic                    done,          // pulse
    output logic                    busy,
    // lane_memory
    input  wire                     absmax_ready,  // AND of all lanes' absmax_ready
    input  wire  [30:0]             absmax,        // this lane's
    output logic                    a_en,
    output logic [WORD_BITS-1:0]    a_word,        // zero when not a_en
    input  wire  [PORTS*128-1:0]    a_data,        // 2 cycles later
    output logic                    b_en,
    output logic [WORD_BITS-1:0]    b_word,
    input  wire  [PORTS*128-1:0]    b_data,        // 2 cycles later
    output logic                    w_en,
    output logic [PORTS-1:0]        w_mask,        // all banks
    output logic [WORD_BITS-1:0]    w_word,
    output logic [PORTS*128-1:0]    w_data,        // zero when not w_en
    // gamma_buffer
    input  wire                     gamma_ready,
    output logic                    gamma_en,
    output logic [WORD_BITS-1:0]    gamma_word,    // zero when not gamma_en
    input  wire  [PORTS*64-1:0]     gamma_data,    // 3 cycles later
    output logic                    gamma_release, // pulse
    // activation bus
    output logic                    act_we,
    output logic [WORD_BITS-1:0]    act_word,      // 0 is the vector's first word
    output logic [PORTS*32-1:0]     act_data,      // 4 * PORTS int8 in element order
    output logic [15:0]             act_mant,      // final with done, held until the next quantisation
    output logic signed [15:0]      act_exp
);
    `include "fixed.svh"

    localparam int VEC = 4 * PORTS;
    localparam int VEC_BITS = $clog2(VEC);
    localparam int SUM_BITS = 42;  // of VEC squares, as a signed number
    localparam [2:0] S_IDLE = 3'd0, S_READY = 3'd1, S_ABSMAX = 3'd2, S_BLOCK = 3'd3,
        S_SUM = 3'd4, S_SCALE = 3'd5, S_QUANT = 3'd6, S_SILU = 3'd7;
    // cycles after the scale's begin at which a pass may begin: its values meet length and factor
`ifdef BUG_LANE_VECTOR_1
    localparam [2:0] HOLD_NORM = 3'd0, HOLD_QUANT = 3'd3;
`else
    localparam [2:0] HOLD_NORM = 3'd0, HOLD_QUANT = 3'd4;
`endif

    // the instruction
    wire is_norm = op_word[7:0] == `OP_NORMQUANT;
    wire is_silu = op_word[7:0] == `OP_SILUGATE;
    wire [WORD_BITS-1:0] words = is_silu ? op_word[96 +: WORD_BITS] : op_word[64 +: WORD_BITS];
    wire [VEC_BITS-1:0] tail = is_silu ? op_word[128 +: VEC_BITS] : op_word[96 +: VEC_BITS];
    wire signed [15:0] in_frac = is_norm ? 16'sd0 : op_word[128 +: 16];
    logic [VEC-1:0] tail_mask;
    logic use_absmax;

    logic [2:0] state, hold;
    logic [32:0] largest;
    wire measured;
    wire finished;
    logic begin_pass;
    always_comb begin
        case (state)
            S_READY: begin_pass = is_silu || (absmax_ready && (gamma_ready || !is_norm)
                && !use_absmax);
            S_BLOCK: begin_pass = 1'b1;
            S_SCALE: begin_pass = hold == 3'd0;
            default: begin_pass = 1'b0;
        endcase
    end

    // reads
    logic reading;
    logic [WORD_BITS-1:0] left, index;
    wire last_read = left == WORD_BITS'(1);
    wire gamma_pass = is_norm && (state == S_SUM || state == S_QUANT);
    logic [1:0] valid, last;  // of the words on their way from the memory
    assign a_en = reading;
    assign b_en = reading && is_silu;
    assign gamma_en = reading && gamma_pass;
    assign gamma_word = gamma_en ? index : '0;
    always_ff @(posedge clk) begin
        valid <= {valid[0], reading};
        last <= {last[0], reading && last_read};
        if (begin_pass) begin
            reading <= 1'b1;
            left <= words;
            index <= '0;
            a_word <= op_word[32 +: WORD_BITS];
            b_word <= op_word[64 +: WORD_BITS];
        end else if (reading) begin
            reading <= !last_read;
            left <= left - WORD_BITS'(1);
            index <= index + WORD_BITS'(1);
            a_word <= last_read ? '0 : a_word + WORD_BITS'(1);
            b_word <= b_word + WORD_BITS'(1);
        end
        if (rst) begin
            reading <= 1'b0;
            a_word <= '0;
            valid <= '0;
        end
    end

    // elements beyond the width count as zero
    wire [VEC*32-1:0] a_masked, b_masked;
    for (genvar i = 0; i < VEC; i++) begin : g_mask
`ifdef BUG_LANE_VECTOR_2
        wire keep = 1'b1;
`else
        wire keep = !last[1] || tail_mask[i];
`endif
        assign a_masked[i*32 +: 32] = a_data[i*32 +: 32] & {32{keep}};
        assign b_masked[i*32 +: 32] = b_data[i*32 +: 32] & {32{keep}};
    end

    // NORM_QUANT: elements
    logic [3:0] block;
    wire scaled_valid;
    wire [VEC*34-1:0] scaled, squares;
    norm_values #(.ELEMENTS(VEC)) u_norm (
        .clk       (clk),
        .rst       (rst),
        .in_valid  (valid[1] && gamma_pass),
        .in_values (a_masked),
        .block     (block),
        .gamma     (gamma_data),
        .out_valid (scaled_valid),
        .out_scaled(scaled),
        .out_square(squares)
    );

    // what is measured or quantised: z, or the vector itself
    logic values_valid;
    logic [VEC*34-1:0] values;
    wire plain_valid = valid[1] && (state == S_ABSMAX || (state == S_QUANT && !is_norm));
    always_ff @(posedge clk) begin
        values_valid <= scaled_valid || plain_valid;
        if (scaled_valid) values <= scaled;
        else if (plain_valid) begin
            for (int i = 0; i < VEC; i++)
                values[i*34 +: 34] <= {{2{a_masked[i*32+31]}}, a_masked[i*32 +: 32]};
        end
        if (rst) values_valid <= 1'b0;
    end

    // measuring: largest magnitude and sum of squares
    logic size_valid;
    logic [VEC*34-1:0] sizes;
    wire largest_valid, sum_valid;
    wire [33:0] word_largest;
    wire [SUM_BITS-1:0] word_sum;
    wire [VEC*SUM_BITS-1:0] square_terms;
    for (genvar i = 0; i < VEC; i++) begin : g_measure
        wire signed [33:0] value = values[i*34 +: 34];
        always_ff @(posedge clk)
            if (values_valid && state != S_QUANT) sizes[i*34 +: 34] <= value < 0 ? -value : value;
        assign square_terms[i*SUM_BITS +: SUM_BITS] = SUM_BITS'(squares[i*34 +: 34]);
    end
    reduce_tree #(.COUNT(VEC), .WIDTH(34), .OP(1)) u_largest (
        .clk      (clk),
        .rst      (rst),
        .in_valid (size_valid),
        .in_data  (sizes),
        .out_valid(largest_valid),
        .out_data (word_largest)
    );
    reduce_tree #(.COUNT(VEC), .WIDTH(SUM_BITS), .OP(0)) u_sum (
        .clk      (clk),
        .rst      (rst),
        .in_valid (scaled_valid && state == S_SUM),
        .in_data  (square_terms),
        .out_valid(sum_valid),
        .out_data (word_sum)
    );
    logic [49:0] sum;
    logic [WORD_BITS-1:0] words_measured;
    assign measured = (state == S_ABSMAX || state == S_SUM) && words_measured == words;
    always_ff @(posedge clk) begin
        size_valid <= values_valid && state != S_QUANT;
        if (largest_valid) begin
            words_measured <= words_measured + WORD_BITS'(1);
            if (word_largest[32:0] > largest) largest <= word_largest[32:0];
        end
        if (sum_valid) sum <= sum + 50'(word_sum);
        if (begin_pass) begin
            words_measured <= '0;
            sum <= '0;
            if (state != S_SCALE) largest <= '0;
        end
        if (state == S_READY && absmax_ready && use_absmax) largest <= {2'd0, absmax};
        if (rst) size_valid <= 1'b0;
    end

    // scales
    wire [5:0] length;
    wire [23:0] factor;
    wire scale_begin = state == S_SCALE && hold == (is_norm ? HOLD_NORM : HOLD_QUANT);
    wire factor_valid, norm_valid;
    wire [15:0] quant_mantissa, norm_mantissa;
    wire signed [15:0] quant_exponent, norm_exponent;
    logic scale_done;
    quantise_scale u_scale (
        .clk         (clk),
        .rst         (rst),
        .in_valid    (scale_begin),
        .in_largest  ({7'd0, largest}),
        .in_frac     (in_frac),
        .out_length  (length),
        .out_valid   (factor_valid),
        .out_factor  (factor),
        .out_mantissa(quant_mantissa),
        .out_exponent(quant_exponent)
    );
    norm_scale u_norm_scale (
        .clk           (clk),
        .rst           (rst),
        .in_valid      (scale_begin && is_norm),
        .in_sum        (sum),
        .block         (block),
        .eps           (op_word[224 +: 32]),
        .gamma_shift   (op_word[192 +: 16]),
        .quant_mantissa(quant_mantissa),
        .quant_exponent(quant_exponent),
        .out_valid     (norm_valid),
        .out_mantissa  (norm_mantissa),
        .out_exponent  (norm_exponent)
    );
    always_ff @(posedge clk) begin
        if (is_norm ? norm_valid : factor_valid) begin
            act_mant <= is_norm ? norm_mantissa : quant_mantissa;
            act_exp <= is_norm ? norm_exponent : quant_exponent;
        end
        scale_done <= !scale_begin && (scale_done || (is_norm ? norm_valid : factor_valid));
    end

    // quantising
    quantise_values #(.ELEMENTS(VEC), .BITS(34)) u_quantise (
        .clk      (clk),
        .rst      (rst),
        .in_valid (values_valid && state == S_QUANT),
        .in_values(values),
        .length   (length),
        .factor   (factor),
        .out_valid(act_we),
        .out_quant(act_data)
    );

    // SILU_GATE
    wire silu_valid;
    wire [VEC*32-1:0] silu;
    logic signed [6:0] silu_shift;
    logic [WORD_BITS-1:0] out_word;
    silu_values #(.ELEMENTS(VEC)) u_silu (
        .clk       (clk),
        .rst       (rst),
        .in_valid  (valid[1] && state == S_SILU),
        .in_gate   (a_masked),
        .in_up     (b_masked),
        .shift     (silu_shift),
        .out_valid (silu_valid),
        .out_values(silu)
    );
    assign w_en = silu_valid;
    assign w_mask = {PORTS{silu_valid}};
    assign w_word = silu_valid ? out_word : '0;
    assign w_data = silu_valid ? silu : '0;
    always_ff @(posedge clk) silu_shift <= clamp_shift(32'sd32 - $signed(op_word[192 +: 32]));

    // results, of whichever kind
    logic [WORD_BITS-1:0] words_out;
    assign act_word = words_out;
    assign finished = words_out == words && (state == S_SILU || (state == S_QUANT && scale_done));
    always_ff @(posedge clk) begin
        if (state == S_READY) begin
            words_out <= '0;
            out_word <= op_word[160 +: WORD_BITS];
        end else if (act_we || silu_valid) begin
            words_out <= words_out + WORD_BITS'(1);
            out_word <= out_word + WORD_BITS'(1);
        end
    end

    // control
    wire [6:0] largest_length = bit_length64({31'd0, largest});
    assign busy = state != S_IDLE;
    always_ff @(posedge clk) begin
        done <= 1'b0;
        gamma_release <= 1'b0;
        case (state)
            S_IDLE: if (start && active) begin
                state <= S_READY;
                use_absmax <= op_use_absmax;
                for (int i = 0; i < VEC; i++)
                    tail_mask[i] <= tail == '0 || VEC_BITS'(i) < tail;
            end
            S_READY: if (is_silu) state <= S_SILU;
                else if (absmax_ready && (gamma_ready || !is_norm)) begin
                    hold <= HOLD_QUANT;
                    state <= !use_absmax ? S_ABSMAX : is_norm ? S_BLOCK : S_SCALE;
                end
            S_ABSMAX: if (measured) begin
                hold <= HOLD_QUANT;
                state <= is_norm ? S_BLOCK : S_SCALE;
            end
            S_BLOCK: begin
                block <= largest_length > 7'd17 ? 4'(largest_length - 7'd17) : 4'd0;
                state <= S_SUM;
            end
            S_SUM: if (measured) begin
                hold <= HOLD_NORM;
                state <= S_SCALE;
            end
            S_SCALE: if (hold == 3'd0) state <= S_QUANT;
                else hold <= hold - 3'd1;
            default: if (finished) begin
                done <= 1'b1;
                gamma_release <= is_norm;
                state <= S_IDLE;
            end
        endcase
        if (rst) begin
            state <= S_IDLE;
            done <= 1'b0;
        end
    end

`ifdef HETERO_ASSERT
    always_ff @(posedge clk) if (!rst && start && active) begin
        assert (state == S_IDLE) else $error("lane_vector: started while busy");
        assert (words != '0) else $error("lane_vector: no words");
    end
`endif

    wire unused = &{1'b0, op_word, word_largest[33], largest_length};
endmodule
`default_nettype wire
