/* Kernels that walk memory flat, as most kernels with a pointer and a count do; and one that takes strides. */

void twice(const float *x, float *y, long n)
{
    for (long i = 0; i < n; i++)
        y[i] = 2 * x[i];
}

void twice_strided(const float *x, float *y, long rows, long columns, long row, long column)
{
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < columns; j++)
            y[i * columns + j] = 2 * x[i * row + j * column];
}

void twice_inplace(float *x, long n)
{
    for (long i = 0; i < n; i++)
        x[i] *= 2;
}

/* One element too far. */
void twice_beyond(const float *x, float *y, long n)
{
    for (long i = 0; i <= n; i++)
        y[i] = 2 * x[i];
}

/* The mean of an element and the one behind it, which the last one has not. */
void smooth(const float *x, float *y, long n)
{
    for (long i = 0; i < n; i++)
        y[i] = (x[i] + x[i + 1]) / 2;
}
