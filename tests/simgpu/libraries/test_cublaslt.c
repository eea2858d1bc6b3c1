/* SPDX-License-Identifier: Apache-2.0 */
/* cuBLASLt's double returns the attributes of a matrix as they were set, in the form of
 * cublasLt.h. */
#include <criterion/criterion.h>
#include <stdint.h>

typedef int status_t;
enum { SUCCESS = 0, INVALID_VALUE = 7 };
enum { TYPE, ORDER, ROWS, COLUMNS, STEP, BATCHES, BATCH_STEP, NO_ATTRIBUTE = 99 };

status_t cublasLtMatrixLayoutCreate(void **layout, int type, uint64_t rows, uint64_t columns,
                                    int64_t step);
status_t cublasLtMatrixLayoutDestroy(void *layout);
status_t cublasLtMatrixLayoutSetAttribute(void *layout, unsigned int which, const void *value,
                                          size_t bytes);
status_t cublasLtMatrixLayoutGetAttribute(const void *layout, unsigned int which, void *value,
                                          size_t bytes, size_t *written);
status_t cublasLtMatrixTransformDescCreate(void **transform, int scale_type);
status_t cublasLtMatrixTransformDescDestroy(void *transform);
status_t cublasLtMatrixTransformDescSetAttribute(void *transform, unsigned int which,
                                                 const void *value, size_t bytes);
status_t cublasLtMatrixTransformDescGetAttribute(const void *transform, unsigned int which,
                                                 void *value, size_t bytes, size_t *written);

Test(cublaslt, a_layout_remembers)
{
    void *layout = NULL;
    uint64_t rows = 0;
    int32_t batches = 0;
    const int32_t more = 12;
    const int64_t step = INT64_C(1) << 40;
    int64_t answer = 0;
    size_t written = 0;

    cr_assert_eq(cublasLtMatrixLayoutCreate(&layout, 2, 640, 480, 641), SUCCESS);
    cr_assert_eq(cublasLtMatrixLayoutGetAttribute(layout, ROWS, &rows, sizeof(rows), &written),
                 SUCCESS);
    cr_assert_eq(rows, 640);
    cr_assert_eq(written, sizeof(rows));
    cr_assert_eq(cublasLtMatrixLayoutGetAttribute(layout, BATCHES, &batches, sizeof(batches), NULL),
                 SUCCESS);
    cr_assert_eq(batches, 1);
    cr_assert_eq(cublasLtMatrixLayoutSetAttribute(layout, BATCHES, &more, sizeof(more)), SUCCESS);
    cr_assert_eq(cublasLtMatrixLayoutSetAttribute(layout, BATCH_STEP, &step, sizeof(step)),
                 SUCCESS);
    cublasLtMatrixLayoutGetAttribute(layout, BATCHES, &batches, sizeof(batches), NULL);
    cublasLtMatrixLayoutGetAttribute(layout, BATCH_STEP, &answer, sizeof(answer), NULL);
    cr_assert_eq(batches, 12);
    cr_assert_eq(answer, step);
    cublasLtMatrixLayoutDestroy(layout);
}

Test(cublaslt, what_does_not_fit_is_refused)
{
    void *layout = NULL;
    uint64_t value = 0;
    size_t written = 0;

    cublasLtMatrixLayoutCreate(&layout, 0, 1, 1, 1);
    cr_assert_eq(cublasLtMatrixLayoutGetAttribute(layout, TYPE, &value, sizeof(value), NULL),
                 INVALID_VALUE);
    cr_assert_eq(cublasLtMatrixLayoutGetAttribute(layout, NO_ATTRIBUTE, &value, 8, NULL),
                 INVALID_VALUE);
    cr_assert_eq(cublasLtMatrixLayoutGetAttribute(layout, STEP, NULL, 0, &written), SUCCESS);
    cr_assert_eq(written, sizeof(int64_t));
    cr_assert_eq(cublasLtMatrixLayoutGetAttribute(layout, STEP, NULL, 0, NULL), INVALID_VALUE);
    cublasLtMatrixLayoutDestroy(layout);
}

Test(cublaslt, a_transform_remembers)
{
    enum { SCALE_TYPE, OPERATION_A = 2 };
    void *transform = NULL;
    const int32_t transposed = 1;
    int32_t value = 0;

    cr_assert_eq(cublasLtMatrixTransformDescCreate(&transform, 10), SUCCESS);
    cublasLtMatrixTransformDescGetAttribute(transform, SCALE_TYPE, &value, sizeof(value), NULL);
    cr_assert_eq(value, 10);
    cr_assert_eq(cublasLtMatrixTransformDescSetAttribute(transform, OPERATION_A, &transposed,
                                                         sizeof(transposed)),
                 SUCCESS);
    cublasLtMatrixTransformDescGetAttribute(transform, OPERATION_A, &value, sizeof(value), NULL);
    cr_assert_eq(value, 1);
    cublasLtMatrixTransformDescDestroy(transform);
}
